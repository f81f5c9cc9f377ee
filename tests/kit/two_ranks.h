// SPDX-License-Identifier: Apache-2.0
#pragma once

// A job of two ranks whose clients are both in the hands of the test's thread.

#include <memory>
#include <thread>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace rueda::kit {

struct TwoRanks {
  explicit TwoRanks(const DaemonFixture& daemon, bool isolated = false) {
    std::thread other([&] { open(daemon, 1, isolated); });
    open(daemon, 0, isolated);
    other.join();
  }
  bool areOpen() const { return clients[0] != nullptr && clients[1] != nullptr; }

  std::unique_ptr<client::Client> clients[2];

 private:
  void open(const DaemonFixture& daemon, int rank, bool isolated) {
    client::Options options = daemon.options(rank, 2);
    options.isolated = isolated;
    auto opened = client::Client::open(options);
    if (opened.isOk()) clients[rank] = std::move(opened).value();
  }
};

// Starts a float32 sum in place; its handle, or 0 if it was refused.
inline uint64_t start(client::Client& client, std::string_view name,
                      const std::vector<int64_t>& shape, float* data) {
  std::vector<uint64_t> handles;
  return client.submit({allreduce(name, shape, data, data)}, &handles).isOk() ? handles[0] : 0;
}

}  // namespace rueda::kit
