// SPDX-License-Identifier: Apache-2.0

// What a job asks for in its hello, seen in what happens.

#include <catch2/catch.hpp>
#include <chrono>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::kit::DaemonFixture;
using rueda::kit::problem;
using rueda::kit::runRanks;
using rueda::shm::Code;
using rueda::shm::Status;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Starts a sum of one element and waits for it.
Status sum(Client& client, const std::string& name) {
  const std::vector<int64_t> one = {1};
  float value = 1;
  std::vector<uint64_t> handles;
  const Status status = client.submit({rueda::kit::allreduce(name, one, &value, &value)}, &handles);
  return status.isOk() ? client.wait(handles[0], milliseconds(0)) : status;
}

}  // namespace

TEST_CASE("within a cycle operations are collected, without one they run at once") {
  DaemonFixture daemon;
  const bool hasCycle = GENERATE(true, false);
  std::vector<milliseconds> took(2);
  const auto body = [&](Client& client, int rank) -> std::string {
    std::string wrong = problem("first", sum(client, "a"));  // Begins a cycle.
    const auto begin = steady_clock::now();
    wrong += problem("second", sum(client, "b"));
    took[static_cast<size_t>(rank)] =
        std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin);
    return wrong;
  };
  const auto adjust = [hasCycle](rueda::client::Options* options) {
    // Only rank 0's counts.
    options->knobs.cycleMicros = options->rank != 0 ? 900 * 1000 : hasCycle ? 400 * 1000 : -1;
  };
  CHECK(runRanks(daemon, 2, body, adjust) == "");
  if (hasCycle) {
    CHECK(took[0] > milliseconds(200));
    CHECK(took[0] < milliseconds(800));
  } else {
    CHECK(took[0] < milliseconds(200));
  }
}

TEST_CASE("a job that asks for it fails when an operation has waited too long") {
  DaemonFixture daemon;
  const auto body = [&](Client& client, int rank) -> std::string {
    if (rank == 1) {
      while (client.health().isOk()) std::this_thread::sleep_for(milliseconds(5));
      return client.health().code() == Code::kStalled ? "" : client.health().toString();
    }
    const Status status = sum(client, "lonely");
    if (status.code() != Code::kStalled) return status.toString();
    return status.message().find("'lonely' waits since") != std::string::npos ? ""
                                                                              : status.message();
  };
  const auto adjust = [](rueda::client::Options* options) {
    options->knobs.stallWarnMs = 100;
    options->knobs.stallShutdownMs = 300;
  };
  const std::string said = runRanks(daemon, 2, body, adjust);
  CHECK(said == "");
}
