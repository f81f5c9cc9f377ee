// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/client.h"

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::DaemonFixture;
using rueda::kit::runRanks;
using rueda::shm::Code;
using rueda::shm::Status;
using std::chrono::milliseconds;

const std::vector<int64_t> kScalar;

}  // namespace

TEST_CASE("a job of one rank computes by itself, scales included") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    float input[2] = {3, 5};
    float output[2] = {};
    const std::vector<int64_t> shape = {2};
    Operation op = rueda::kit::allreduce("x", shape, input, output);
    op.prescale = 2;
    op.reduceOp = rueda::shm::ReduceOp::kAverage;
    if (const Status status = client.run(op); !status.isOk()) return status.toString();
    if (output[0] != 6 || output[1] != 10 || input[0] != 3) return "wrong result";
    Operation copy = rueda::kit::broadcast("y", shape, output, 0);
    copy.input = input;
    if (const Status status = client.run(copy); !status.isOk()) return status.toString();
    if (output[0] != 3 || output[1] != 5) return "wrong copy";
    return client.run(rueda::kit::barrier("b")).isOk() ? "" : "barrier";
  };
  CHECK(runRanks(daemon, 1, body) == "");
}

TEST_CASE("more operations than may be in flight take their turns") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    constexpr uint64_t kOps = rueda::shm::kMaxInFlight + 3000;
    std::vector<uint64_t> handles;
    float value = 0;
    for (uint64_t i = 0; i < kOps; ++i) {
      const std::string name = std::to_string(i);
      std::vector<uint64_t> one;
      Operation op = rueda::kit::allreduce(name, kScalar, &value, &value);
      op.count = 0;
      const std::vector<int64_t> none = {0};
      op.shape = none.data();
      op.ndim = 1;
      if (const Status status = client.submit({op}, &one); !status.isOk()) return status.toString();
      handles.push_back(one[0]);
    }
    for (const uint64_t handle : handles)
      if (const Status status = client.wait(handle, milliseconds(0)); !status.isOk())
        return status.toString();
    return "";
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("a group that could never be in flight at once is refused") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    const std::vector<Operation> ops(rueda::shm::kMaxInFlight, rueda::kit::barrier("x"));
    std::vector<uint64_t> handles;
    const Status status = client.submit(ops, &handles);
    if (status.code() != Code::kResourceExhausted ||
        status.message() != "a group of 16384 operations; fewer than 16384 are allowed")
      return status.toString();
    return client.submit({}, &handles).isOk() && handles.empty() ? "" : "nothing is no operation";
  };
  CHECK(runRanks(daemon, 1, body) == "");
}

TEST_CASE("a failed submission leaves nothing behind: its names are free") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    float value = 1;
    const auto op = rueda::kit::allreduce("x", kScalar, &value, &value);
    std::vector<uint64_t> handles;
    if (client.submit({op, rueda::kit::allreduce("y", kScalar, &value, &value), op}, &handles)
            .code() != Code::kAlreadyExists)
      return "accepted";
    if (client.poll(1).status().code() != Code::kInvalidArgument) return "a handle lives";
    const Status status = client.run(op);
    return status.isOk() && value == 2 ? "" : status.toString();
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("handles of nothing are refused by every call that takes one") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    for (const uint64_t handle : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      if (client.poll(handle).status().code() != Code::kInvalidArgument) return "poll";
      if (client.wait(handle, milliseconds(1)).code() != Code::kInvalidArgument) return "wait";
      if (client.release(handle).code() != Code::kInvalidArgument) return "release";
      if (client.gathered(handle) != nullptr) return "gathered";
    }
    return "";
  };
  CHECK(runRanks(daemon, 1, body) == "");
}

TEST_CASE(
    "foreign memory may change hands between submit and wait's return, not its owner's view") {
  // The input is copied at submit, the output written in wait: the caller's bytes in between are
  // its own.
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    std::vector<float> data(1000, 1.0f);
    const std::vector<int64_t> shape = {1000};
    std::vector<uint64_t> handles;
    if (!client.submit({rueda::kit::allreduce("x", shape, data.data(), data.data())}, &handles)
             .isOk())
      return "submit";
    std::fill(data.begin(), data.end(), -5.0f);
    if (!client.wait(handles[0], milliseconds(0)).isOk()) return "wait";
    return data.front() == 2 && data.back() == 2 ? "" : "wrong result";
  };
  CHECK(runRanks(daemon, 2, body) == "");
}
