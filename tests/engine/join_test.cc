// SPDX-License-Identifier: Apache-2.0

// Ranks that run out of data, over real clients and the engine.

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/hostile_client.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::DaemonFixture;
using rueda::kit::HostileClient;
using rueda::kit::problem;
using rueda::kit::runRanks;
using rueda::shm::Code;
using rueda::shm::OpKind;
using rueda::shm::ReduceOp;
using rueda::shm::Status;
using std::chrono::milliseconds;

using Floats = std::vector<float>;

Status reduce(Client& client, ReduceOp reduceOp, Floats* values, const std::string& name = "x") {
  const std::vector<int64_t> shape = {static_cast<int64_t>(values->size())};
  Operation op = rueda::kit::allreduce(name, shape, values->data(), values->data());
  op.reduceOp = reduceOp;
  return client.run(op);
}

}  // namespace

TEST_CASE("ranks with more steps than others train on, and all learn who came last") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  const auto body = [](Client& client, int rank) -> std::string {
    std::string wrong;
    for (int epoch = 0; epoch < 3; ++epoch) {
      for (int step = 0; step < 5 * (rank + 1); ++step) {
        Floats values(3000, 1);
        wrong += problem("sum", reduce(client, ReduceOp::kSum, &values));
        const float present = step < 5 ? 3 : step < 10 ? 2 : 1;
        if (values != Floats(3000, present)) wrong += "wrong sum; ";
      }
      const auto last = client.join(0, false);
      if (!last.isOk() || last.value() != 2) wrong += problem("join", last.status()) + "last; ";
    }
    return wrong;
  };
  const auto adjust = [isIsolated](rueda::client::Options* options) {
    options->isolated = isIsolated;
  };
  CHECK(runRanks(daemon, 3, body, adjust) == "");
}

TEST_CASE("a rank that has joined counts with zeros in every reduction, or is left out of it") {
  DaemonFixture daemon;
  const bool leftOut = GENERATE(false, true);
  struct Variant {
    ReduceOp op;
    float zeros, without;  // Of 2, 4 and a rank that has joined.
  };
  const std::vector<Variant> variants = {{ReduceOp::kSum, 6, 6},
                                         {ReduceOp::kAverage, 2, 3},
                                         {ReduceOp::kMin, 0, 2},
                                         {ReduceOp::kMax, 4, 4},
                                         {ReduceOp::kProduct, 0, 8}};
  const auto body = [&](Client& client, int rank) -> std::string {
    std::string wrong;
    if (rank == 1) return problem("join", client.join(0, leftOut).status());
    for (const Variant& variant : variants) {
      for (const size_t count : {1u, 100000u}) {
        Floats values(count, rank == 0 ? 2 : 4);
        wrong += problem("reduce", reduce(client, variant.op, &values));
        if (values != Floats(count, leftOut ? variant.without : variant.zeros))
          wrong += std::string(rueda::shm::reduceOpName(variant.op)) + " is wrong; ";
      }
    }
    return wrong + problem("join", client.join(0, leftOut).status());
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("with zeros in its place a gather fails on the others, which go on") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    if (rank == 1) return problem("join", client.join(0, false).status());
    const std::vector<int64_t> one = {1};
    float value = 1;
    std::vector<uint64_t> handles;
    const Operation op = rueda::kit::allgather("g", one, &value);
    if (const Status s = client.submit({op}, &handles); !s.isOk()) return problem("submit", s);
    const Status ended = client.wait(handles[0], milliseconds(0));
    if (ended.code() != Code::kMismatch) return "gather: " + ended.toString();
    Floats values = {1};
    const std::string wrong = problem("afterwards", reduce(client, ReduceOp::kSum, &values));
    return wrong + problem("join", client.join(0, false).status());
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("left out, a rank gives no rows and gets none, and scattered rows go to the others") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  const auto body = [](Client& client, int rank) -> std::string {
    if (rank == 1) return problem("join", client.join(0, true).status());
    const std::vector<int64_t> shape = {3};
    const Floats rows = {float(rank), float(rank), float(rank)};
    std::vector<uint64_t> handles;
    std::string wrong;
    for (const OpKind kind : {OpKind::kAllgather, OpKind::kAlltoall}) {
      Operation op = rueda::kit::shaped(kind, "g", shape);
      op.input = rows.data();
      wrong += problem("submit", client.submit({op}, &handles));
      wrong += problem("wait", client.wait(handles[0], milliseconds(0)));
      const auto* gathered = client.gathered(handles[0]);
      if (gathered == nullptr) return wrong;
      Floats got(gathered->bytes / sizeof(float));
      std::memcpy(got.data(), gathered->data, gathered->bytes);
      const bool isGather = kind == OpKind::kAllgather;
      if (got != (isGather ? Floats{0, 0, 0, 2, 2, 2} : Floats{0, 2})) wrong += "wrong rows; ";
      if (gathered->firstDims !=
          (isGather ? std::vector<int64_t>{3, 0, 3} : std::vector<int64_t>{1, 0, 1}))
        wrong += "wrong counts; ";
      wrong += problem("release", client.release(handles[0]));
    }
    Floats own = {-1};
    Operation scatter = rueda::kit::allreduce("r", shape, rows.data(), own.data());
    scatter.kind = OpKind::kReducescatter;
    wrong += problem("scatter", client.run(scatter));
    if (own != Floats{2}) wrong += "wrong scattered row; ";
    return wrong + problem("join", client.join(0, true).status());
  };
  const auto adjust = [isIsolated](rueda::client::Options* options) {
    options->isolated = isIsolated;
  };
  CHECK(runRanks(daemon, 3, body, adjust) == "");
}

TEST_CASE("blocking operations meet directly again after a join") {
  DaemonFixture daemon;
  uint64_t direct = 0;
  const auto body = [&](Client& client, int rank) -> std::string {
    std::string wrong;
    Floats values = {1};
    if (rank == 1) wrong += problem("sum", reduce(client, ReduceOp::kSum, &values));
    if (rank == 1) wrong += problem("sum", reduce(client, ReduceOp::kSum, &values));
    wrong += problem("join", client.join(0, false).status());
    for (int i = 0; i < 50; ++i) {
      values = {1};
      wrong += problem("sum", reduce(client, ReduceOp::kSum, &values));
      if (values[0] != 2) wrong += "wrong sum; ";
    }
    if (rank == 0) {
      const auto view = daemon.state();
      direct = view.jobs[0].opsDirect - view.jobs[0].opsCompleted;
    }
    return wrong;
  };
  CHECK(runRanks(daemon, 2, body) == "");
  CHECK(direct > 0);
}

TEST_CASE("a rank that waits in a join is no stall") {
  rueda::kit::DaemonSetup setup;
  setup.engine.job.stallShutdown = milliseconds(300);
  DaemonFixture daemon(setup);
  const auto body = [](Client& client, int rank) -> std::string {
    if (rank == 1) std::this_thread::sleep_for(milliseconds(900));
    return problem("join", client.join(0, false).status());
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("a rank leaves while others have joined: they learn of it") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    if (rank == 1) {
      std::this_thread::sleep_for(milliseconds(50));
      return "leaves";
    }
    const auto last = client.join(0, false);
    return last.status().code() == Code::kShutDown ? "" : last.status().toString();
  };
  CHECK(runRanks(daemon, 3, body) == "rank 1: leaves\n");
}

namespace {

// Starts operations of these names, one after the other has ended.
std::string startAll(Client& client, const std::vector<std::string>& names) {
  std::string wrong;
  for (const std::string& name : names) {
    float value = 1;
    std::vector<uint64_t> handles;
    const Status begun = client.submit({rueda::kit::allreduce(name, {}, &value, &value)}, &handles);
    wrong += problem("submit", begun.isOk() ? client.wait(handles[0], milliseconds(0)) : begun);
  }
  return wrong;
}

}  // namespace

// Once the rank that had started more for ever took itself for one that is never last, and the
// others woke the daemon each for itself.
TEST_CASE("after a join ranks count what they start from the same number again") {
  DaemonFixture daemon;
  HostileClient witness(daemon.socket());  // A rank that has joined, and looks at the board.
  std::atomic<int> begun{0};               // Joins of the rank that has fewer steps.
  std::atomic<int> ended{0};
  std::atomic<int> looked{0};
  std::string wrong[2];
  const auto runRank = [&](int rank) {
    auto opened = Client::open(daemon.options(rank, 3));
    if (!opened.isOk()) wrong[rank] = problem("open", opened.status());
    for (int round = 0; round < 2; ++round) {
      // Rank 0 has more steps in the first round, rank 1 in the second.
      if (opened.isOk()) {
        Client& client = *opened.value();
        wrong[rank] += startAll(client, {"a", "b"});
        if (rank != round) ++begun;
        while (begun.load() <= round) std::this_thread::yield();
        if (rank == round) wrong[rank] += startAll(client, {"c", "d", "e"});
        wrong[rank] += problem("join", client.join(0, false).status());
      }
      ++ended;
      while (looked.load() <= round) std::this_thread::yield();
    }
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.emplace_back(runRank, rank);
  bool isThere = witness.join(2, 3) && witness.awaitJob();
  for (int round = 0; round < 2; ++round) {
    rueda::shm::SubmissionEntry join = rueda::kit::allreduceEntry(round + 1u, 0);
    join.kind = static_cast<uint8_t>(OpKind::kJoin);
    if (isThere) witness.submit(join, {}, ".join");
    while (ended.load() < 2 * round + 2) std::this_thread::yield();
    isThere = isThere && witness.completion().has_value();
    const auto countOf = [&](int rank) { return witness.board()->starts[rank].count.load(); };
    CHECK((isThere && countOf(0) > 0));
    CHECK((isThere && countOf(0) == countOf(1)));
    ++looked;
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK(isThere);
  CHECK(wrong[0] + wrong[1] == "");
}

// Once the thread whose join failed took back what the other one's had marked.
TEST_CASE("a rank that joins from two threads has joined once") {
  DaemonFixture daemon;
  auto other = std::make_unique<HostileClient>(daemon.socket());
  std::string wrong;
  std::atomic<int> refused{0};
  std::atomic<int> begun{0};
  std::atomic<int> ended{0};  // 1: the other rank may look.
  constexpr int kRounds = 100;
  std::thread rank([&] {
    auto opened = Client::open(daemon.options(0, 2));
    if (!opened.isOk()) return (void)(wrong = problem("open", opened.status()));
    for (int round = 0; round < kRounds && wrong.empty(); ++round) {
      const auto join = [&] {
        for (++begun; begun.load() < 2 * round + 2;) std::this_thread::yield();
        const auto last = opened.value()->join(0, false);
        if (last.status().code() == Code::kAlreadyExists) ++refused;
        return last.status();
      };
      Status first;
      std::thread thread([&] { first = join(); });
      const Status second = join();
      thread.join();
      if (first.isOk() == second.isOk()) wrong = first.toString() + ", " + second.toString();
      ended = 1;
      while (ended.load() == 1 && wrong.empty()) std::this_thread::yield();
    }
    ended = 1;
    refused = kRounds;  // Also after a failure, so that the other one comes to its end.
  });
  bool isThere = other->join(1, 2) && other->awaitJob();
  for (uint64_t round = 1; round <= kRounds && isThere; ++round) {
    while (refused.load() < static_cast<int>(round)) std::this_thread::yield();
    rueda::shm::SubmissionEntry join = rueda::kit::allreduceEntry(round, 0);
    join.kind = static_cast<uint8_t>(OpKind::kJoin);
    other->submit(join, {}, ".join");
    isThere = other->completion().has_value();
    while (isThere && ended.load() == 0) std::this_thread::yield();
    const uint64_t rounds = other->board()->starts[0].count.load() / (rueda::shm::kAllStarted + 1);
    isThere = isThere && rounds == round;
    ended = 0;
  }
  other.reset();  // After a failure the rank would wait for it.
  rank.join();
  CHECK(isThere);
  CHECK(wrong == "");
}
