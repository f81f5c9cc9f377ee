// SPDX-License-Identifier: Apache-2.0

// Ranks that come to a process set's end from different sides: some remove it, others work in it,
// join or leave. Every call ends, each with an outcome that says why. The clients have no deadlines
// here: what does not end by itself hangs.

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <thread>
#include <utility>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::DaemonFixture;
using rueda::kit::problem;
using rueda::kit::runRanks;
using rueda::shm::Code;
using rueda::shm::OpKind;
using rueda::shm::Status;
using std::chrono::milliseconds;

std::string unless(const std::string& what, const Status& status, Code code,
                   const std::string& text) {
  const bool isAsWanted = status.code() == code && status.message().find(text) != std::string::npos;
  return isAsWanted ? "" : what + ": " + status.toString() + "; ";
}

Operation sumIn(uint32_t set, float* value) {
  Operation op = rueda::kit::allreduce("x", {}, value, value);
  op.processSet = set;
  return op;
}

// All ranks are of one mind: these may form a set again, and all go on.
std::string goOn(Client& client, int rank) {
  const auto set = client.addProcessSet({0, 1});
  std::string wrong = problem("add again", set.status());
  float value = 1;
  if (set.isOk() && rank < 2) wrong += problem("sum in it", client.run(sumIn(set.value(), &value)));
  if (set.isOk() && rank < 2 && value != 2) wrong += "wrong sum; ";
  if (set.isOk()) wrong += problem("remove again", client.removeProcessSet(set.value()));
  value = 1;
  wrong += problem("sum of all", client.run(sumIn(0, &value)));
  return wrong + (value == float(client.size()) ? "" : "wrong sum of all; ");
}

}  // namespace

TEST_CASE("a rank outside asks early, and the set lives until its ranks are through") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    std::string wrong = problem("add", client.addProcessSet({0, 1}).status());
    for (int step = 0; rank < 2 && step < 20 + 20 * rank; ++step) {
      float value = 1;
      wrong += problem("step", client.run(sumIn(1, &value)));
      if (value != (step < 20 ? 2 : 1)) wrong += "wrong sum; ";
    }
    if (rank < 2) wrong += problem("join", client.join(1, false).status());
    wrong += problem("remove", client.removeProcessSet(1));
    return wrong + goOn(client, rank);
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("who removes a set while a rank has joined all is told so, and so is who adds one") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    std::string wrong = problem("add", client.addProcessSet({0, 1}).status());
    if (rank != 0) {
      wrong += unless("remove", client.removeProcessSet(1), Code::kMismatch, "rank 0 has joined");
      wrong += unless("add", client.addProcessSet({1, 2}).status(), Code::kMismatch,
                      "rank 0 has joined");
    }
    wrong += problem("join", client.join(0, false).status());
    wrong += problem("remove", client.removeProcessSet(1));
    return wrong + goOn(client, rank);
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("who adds or removes a set is told of a rank that leaves instead") {
  DaemonFixture daemon;
  const bool adds = GENERATE(true, false);
  const auto body = [adds](Client& client, int rank) -> std::string {
    const std::string wrong = problem("add", client.addProcessSet({0, 1}).status());
    if (rank == 2) return wrong + "leaves";
    const Status ended = adds ? client.addProcessSet({1, 2}).status() : client.removeProcessSet(1);
    return wrong + unless(adds ? "add" : "remove", ended, Code::kShutDown, "rank 2 ");
  };
  CHECK(runRanks(daemon, 3, body) == "rank 2: leaves\n");
}

// Once the rank that named a set of which it knew nothing was told so alone, and the other waited.
TEST_CASE("ranks that remove different sets all hear of it") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    std::string wrong = problem("add", client.addProcessSet({0, 1}).status());
    const Status removed = client.removeProcessSet(rank == 2 ? 99 : 1);
    wrong += unless("remove", removed, Code::kMismatch, "process set 99");
    wrong += problem("remove", client.removeProcessSet(1));
    return wrong + goOn(client, rank);
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("a thread removes a set while another one of each rank works in it") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    std::string wrong = problem("add", client.addProcessSet({0, 1}).status());
    std::string working;
    std::atomic<int> steps{0};
    std::atomic<bool> isOver{false};
    std::thread worker([&] {
      for (; rank < 2; ++steps) {
        float value = 1;
        const Status status = client.run(sumIn(1, &value));
        if (status.isOk() && value == 2) continue;
        const bool isOver = status.code() == Code::kUnavailable ||
                            (status.code() == Code::kInvalidArgument &&
                             status.message().find("process set 1") != std::string::npos);
        if (!isOver) working = "step " + std::to_string(steps) + ": " + status.toString();
        break;
      }
      isOver = true;
    });
    while (!isOver && steps.load() < 20) std::this_thread::yield();
    wrong += problem("remove", client.removeProcessSet(1));
    worker.join();
    return wrong + working + goOn(client, rank);
  };
  for (int round = 0; round < 5; ++round) CHECK(runRanks(daemon, 3, body) == "");
}

namespace {

// What a rank of a set does before it removes it, by chance. Nothing waits for a rank that may be
// through with the set.
std::string useSet(Client& client, uint32_t set, std::minstd_rand* random, bool joins) {
  const auto mayEnd = [](const std::string& what, const Status& status) {
    const bool isRight = status.isOk() || status.code() == Code::kUnavailable;
    return isRight ? "" : problem(what, status);
  };
  std::string wrong;
  float value = 1;
  std::vector<uint64_t> handles;
  if ((*random)() % 2 == 0)
    wrong += mayEnd("submit", client.submit({sumIn(set, &value)}, &handles));
  const auto waitAll = [&] {
    for (const uint64_t handle : std::exchange(handles, {}))
      wrong += mayEnd("wait", client.wait(handle, milliseconds(0)));
  };
  if (joins && (*random)() % 2 == 0) waitAll();
  if (joins) wrong += mayEnd("join", client.join(set, (*random)() % 2 == 0).status());
  if (joins && (*random)() % 2 == 0) waitAll();
  wrong += problem("remove", client.removeProcessSet(set));
  waitAll();
  return wrong;
}

}  // namespace

TEST_CASE("whatever ranks do with a set before they remove it, all come through") {
  DaemonFixture daemon;
  INFO("seed " << Catch::rngSeed() << " (--rng-seed)");
  const auto body = [](Client& client, int rank) -> std::string {
    std::minstd_rand random(Catch::rngSeed() * 16 + unsigned(rank) + 1);
    std::string wrong;
    for (unsigned round = 0; round < 100 && wrong.empty(); ++round) {
      const bool joins = std::minstd_rand(Catch::rngSeed() * 128 + round)() % 2 == 0;
      const auto set = client.addProcessSet({0, 1});
      if (!set.isOk()) return wrong + set.status().toString();
      wrong += rank < 2 ? useSet(client, set.value(), &random, joins)
                        : problem("remove", client.removeProcessSet(set.value()));
      wrong += goOn(client, rank);
    }
    return wrong;
  };
  CHECK(runRanks(daemon, 3, body) == "");
}
