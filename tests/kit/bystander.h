// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace rueda::kit {

// An innocent job beside the hostile one; isWell() checks it.
class Bystander {
 public:
  explicit Bystander(const DaemonFixture& daemon) {
    auto opened = client::Client::open(daemon.options(0, 1, "bystander"));
    if (opened.isOk()) client_ = std::move(opened).value();
  }
  bool isWell() {
    float value = 2;
    const std::vector<int64_t> scalar;
    std::vector<uint64_t> handles;
    return client_ != nullptr && client_->health().isOk() &&
           client_->submit({allreduce("x", scalar, &value, &value)}, &handles).isOk() &&
           client_->wait(handles[0], std::chrono::milliseconds(0)).isOk() && value == 2;
  }

 private:
  std::unique_ptr<client::Client> client_;
};

}  // namespace rueda::kit
