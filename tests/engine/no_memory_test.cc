// SPDX-License-Identifier: Apache-2.0

// A rank that has no memory for its part of an operation, over real clients and the engine.

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::DaemonFixture;
using rueda::kit::DaemonSetup;
using rueda::kit::problem;
using rueda::kit::runRanks;
using rueda::shm::Code;
using rueda::shm::OpKind;
using rueda::shm::Status;
using std::chrono::milliseconds;

constexpr uint64_t kMiB = 1 << 20;
constexpr int kPoor = 1;  // The rank without memory.

// All ranks together may have `bytes`, of which each takes 4 MiB for its first block.
DaemonSetup limitedTo(uint64_t bytes) {
  DaemonSetup setup;
  setup.engine.quota.bytesPerUid = bytes;
  return setup;
}

// All but the poor rank get their segment, and then know of each other that they have it.
Status takeMemory(Client& client, int rank) {
  if (rank != kPoor) RUEDA_RETURN_IF_ERROR(client.memory().allocate(64).status());
  return client.run(rueda::kit::barrier("all have what they get"));
}

Status runAsync(Client& client, const std::vector<Operation>& ops, std::vector<Status>* ended) {
  std::vector<uint64_t> handles;
  RUEDA_RETURN_IF_ERROR(client.submit(ops, &handles));
  for (const uint64_t handle : handles) ended->push_back(client.wait(handle, milliseconds(0)));
  return Status::ok();
}

bool saysWho(const Status& status, const std::string& operation) {
  return status.code() == Code::kResourceExhausted &&
         status.message().find(operation + ": rank 1 cannot take part: ") == 0 &&
         status.message().find("bytes of shared memory of uid ") != std::string::npos;
}

// The name is free, and the session goes on.
std::string useAgain(Client& client) {
  return problem("again", client.run(rueda::kit::barrier("x")));
}

}  // namespace

// Once it failed alone, and the others waited until the job stalled.
TEST_CASE("what one rank has no memory for fails on all of them, with its number and the reason") {
  const bool isIsolated = GENERATE(false, true);
  const bool isBlocking = GENERATE(false, true);
  const OpKind kind = GENERATE(OpKind::kAllreduce, OpKind::kBroadcast, OpKind::kAllgather,
                               OpKind::kAlltoall, OpKind::kReducescatter);
  DaemonFixture daemon(limitedTo(6 * kMiB));
  CAPTURE(isIsolated, isBlocking, rueda::shm::opKindName(kind));
  const auto body = [&](Client& client, int rank) -> std::string {
    std::string wrong = problem("memory", takeMemory(client, rank));
    const std::vector<int64_t> shape = {30000};
    std::vector<float> input(30000, 1);
    std::vector<float> output(60000, 0);
    Operation op = rueda::kit::shaped(kind, "x", shape);
    op.input = input.data();
    op.output = output.data();
    op.outputRoom = output.size() * sizeof(float);
    op.root = kPoor;  // A receiver needs no memory for staging.
    std::vector<Status> ended;
    if (isBlocking)
      ended.push_back(client.run(op));
    else
      wrong += problem("submit", runAsync(client, {op}, &ended));
    const std::string named = std::string(rueda::shm::opKindName(kind)) + " 'x'";
    if (ended.size() != 1 || !saysWho(ended[0], named))
      wrong += ended.empty() ? "not submitted; " : "ended: " + ended[0].toString() + "; ";
    return wrong + useAgain(client);
  };
  const auto adjust = [isIsolated](rueda::client::Options* options) {
    options->isolated = isIsolated;
  };
  CHECK(runRanks(daemon, 2, body, adjust) == "");
}

TEST_CASE("of a group only what lacks memory fails") {
  DaemonFixture daemon(limitedTo(10 * kMiB));
  const auto body = [](Client& client, int rank) -> std::string {
    std::string wrong = problem("memory", takeMemory(client, rank));
    std::vector<float> data(30000, 1);
    const std::vector<int64_t> shape = {30000};
    const std::vector<int64_t> none = {0};
    const std::vector<Operation> group = {
        rueda::kit::allreduce("x", shape, data.data(), data.data()),
        rueda::kit::allreduce("empty", none, nullptr, nullptr)};
    std::vector<Status> ended;
    wrong += problem("submit", runAsync(client, group, &ended));
    if (ended.size() != 2 || !saysWho(ended[0], "allreduce 'x'")) return wrong + "the large one";
    return wrong + problem("the empty one", ended[1]) + useAgain(client);
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("a tensor that differs is told before the memory that it needs") {
  DaemonFixture daemon(limitedTo(6 * kMiB));
  const auto body = [](Client& client, int rank) -> std::string {
    std::string wrong = problem("memory", takeMemory(client, rank));
    std::vector<float> data(rank == kPoor ? 3000000 : 100, 1);
    const std::vector<int64_t> shape = {int64_t(data.size())};
    std::vector<Status> ended;
    wrong += problem(
        "submit",
        runAsync(client, {rueda::kit::allreduce("x", shape, data.data(), data.data())}, &ended));
    if (ended.size() != 1 || ended[0].code() != Code::kMismatch) wrong += "no mismatch; ";
    return wrong + useAgain(client);
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

// Once the peers of a rank without staging blocks waited on the board.
TEST_CASE("a rank without room for staging blocks takes the ring, and sums through less") {
  DaemonFixture daemon(limitedTo(9 * kMiB));
  const auto body = [](Client& client, int rank) -> std::string {
    std::string wrong;
    // Leaves 100 KiB of the poor rank's segment.
    const uint64_t taken = rank == kPoor ? 4 * kMiB - (100 << 10) : 64;
    wrong += problem("memory", client.memory().allocate(taken).status());
    wrong += problem("barrier", client.run(rueda::kit::barrier("memory")));
    const std::vector<int64_t> shape = {5000};
    for (int i = 0; i < 5; ++i) {
      std::vector<float> data(5000, float(rank + 1));
      wrong +=
          problem("sum", client.run(rueda::kit::allreduce("x", shape, data.data(), data.data())));
      if (data != std::vector<float>(5000, 3)) wrong += "wrong sum; ";
      wrong += useAgain(client);
    }
    return wrong;
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("a rank without room for the rows of all fails alone, and the others have theirs") {
  DaemonFixture daemon(limitedTo(9 * kMiB));
  const bool isBlocking = GENERATE(false, true);
  const auto body = [isBlocking](Client& client, int rank) -> std::string {
    std::string wrong = problem("memory", client.memory().allocate(64).status());
    wrong += problem("barrier", client.run(rueda::kit::barrier("memory")));
    const std::vector<int64_t> shape = {700000};
    const std::vector<float> rows(700000, float(rank));
    std::vector<float> all(rank == kPoor ? 0 : 1400000);
    void* result = nullptr;
    Operation op = rueda::kit::allgather("x", shape, rows.data());
    op.output = rank == kPoor ? nullptr : all.data();
    op.outputRoom = all.size() * sizeof(float);
    op.result = &result;
    std::vector<Status> ended;
    if (isBlocking)
      ended.push_back(client.run(op));
    else
      wrong += problem("submit", runAsync(client, {op}, &ended));
    if (ended.empty()) return wrong;
    if (rank == kPoor) {
      if (ended[0].code() != Code::kResourceExhausted) wrong += "poor: " + ended[0].toString();
    } else if (!ended[0].isOk() || all.front() != 0 || all.back() != 1) {
      wrong += "rich: " + ended[0].toString();
    }
    return wrong + useAgain(client);
  };
  CHECK(runRanks(daemon, 2, body) == "");
}
