// SPDX-License-Identifier: Apache-2.0

// Blocking operations of process sets on their boards, over real clients and the engine.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>

#include "tests/engine/set_sum.h"
#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::engine::test::Floats;
using rueda::engine::test::sumIn;
using rueda::flow::StateView;
using rueda::kit::DaemonFixture;
using rueda::kit::problem;
using rueda::kit::runRanks;
using rueda::shm::Code;
using rueda::shm::OpKind;
using rueda::shm::Status;
using std::chrono::milliseconds;

}  // namespace

TEST_CASE("blocking operations of a set run on its board, while it has one") {
  DaemonFixture daemon;
  const auto body = [&](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({0, 2});
    if (!set.isOk()) return problem("add", set.status());
    for (int i = 0; i < 50 && rank != 1; ++i) {
      Floats values(size_t(1) << (i % 18), float(rank + i));
      if (const Status s = sumIn(client, set.value(), &values); !s.isOk()) return s.toString();
      if (values.front() != float(2 + 2 * i) || values.back() != values.front()) return "wrong sum";
    }
    const auto barrier = rueda::kit::barrier("end");
    return problem("barrier", client.run(barrier));
  };
  std::vector<uint64_t> direct;
  const auto watched = [&](Client& client, int rank) -> std::string {
    const std::string said = body(client, rank);
    if (rank != 0) return said;
    const auto state = daemon.state();
    for (const auto& one : state.jobs.at(0).ranks) direct.push_back(one.direct);
    return said;
  };
  CHECK(runRanks(daemon, 3, watched) == "");
  REQUIRE(direct.size() == 3);
  CHECK(direct[0] >= 50);
  CHECK(direct[1] < 10);
  CHECK(direct[2] >= 50);
}

TEST_CASE("threads of a rank run in overlapping sets at the same time") {
  DaemonFixture daemon;
  const std::vector<std::vector<int64_t>> members = {{0, 1}, {1, 2}, {0, 2}};
  const auto body = [&](Client& client, int rank) -> std::string {
    std::vector<uint32_t> sets = {0};
    for (const auto& ranks : members) {
      const auto set = client.addProcessSet(ranks);
      if (!set.isOk()) return problem("add", set.status());
      sets.push_back(set.value());
    }
    std::vector<std::string> said(sets.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < sets.size(); ++i)
      threads.emplace_back([&, i] {
        const std::vector<int64_t> all = {0, 1, 2};
        const auto& ranks = i == 0 ? all : members[i - 1];
        if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) return;
        for (int round = 0; round < 60 && said[i].empty(); ++round) {
          Floats values(round % 3 == 0 ? 70000 : round % 3 == 1 ? 300 : 1, float(rank + round));
          const std::string name = "x" + std::to_string(i);
          said[i] = problem(name, sumIn(client, sets[i], &values, name));
          float expected = 0;
          for (const int64_t member : ranks) expected += float(member + round);
          if (values.front() != expected || values.back() != expected) said[i] += "wrong sum";
        }
      });
    for (std::thread& thread : threads) thread.join();
    return said[0] + said[1] + said[2] + said[3];
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("who blocks in a set that is removed hears of it, and the number is used again") {
  DaemonFixture daemon;
  const auto body = [&](Client& client, int rank) -> std::string {
    for (int round = 0; round < 20; ++round) {
      const bool isOdd = round % 2 == 1;
      const auto set =
          client.addProcessSet(isOdd ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{0, 1});
      if (!set.isOk()) return problem("add", set.status());
      const bool isMember = rank == 1 || rank == (isOdd ? 2 : 0);
      std::string said;
      std::string missed;
      std::thread blocked([&] {
        if (!isMember) return;
        Floats values(40000, 1);
        said = problem("sum", sumIn(client, set.value(), &values));
        if (values.back() != 2) said += "wrong sum";
        if (rank != 1) return;
        const Status ended = sumIn(client, set.value(), &values, "alone");
        if (ended.code() != Code::kUnavailable) said += "not refused: " + ended.toString();
      });
      if (rank != 1) blocked.join();
      const auto isThere = [](const StateView& state) {
        const auto& pending = state.jobs.at(0).pending;
        return std::any_of(pending.begin(), pending.end(),
                           [](const auto& one) { return one.name == "alone"; });
      };
      if (rank == 1 && !daemon.eventually(isThere)) missed = "rank 1 does not wait; ";
      const Status removed = client.removeProcessSet(set.value());
      if (rank == 1) blocked.join();
      said += missed;
      if (!removed.isOk() || !said.empty()) return said + problem("remove", removed);
      if (set.value() > 2) return "numbers are not used again";
    }
    Floats values = {1};
    const std::string said = problem("afterwards", sumIn(client, 0, &values));
    return values[0] == 3 ? said : said + "wrong sum";
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("ranks of a set that come by different ways meet in the ring, and go on on the board") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({1, 2});
    if (rank == 0) return problem("add", set.status());
    Floats values = {float(rank)};
    const std::vector<int64_t> one = {1};
    Operation op = rueda::kit::allreduce("mixed", one, values.data(), values.data());
    op.processSet = set.value();
    std::vector<uint64_t> handles;
    const Status mixed = rank == 1 ? client.run(op) : client.submit({op}, &handles);
    if (!mixed.isOk()) return problem("mixed", mixed);
    if (rank == 2)
      if (const Status s = client.wait(handles[0], milliseconds(0)); !s.isOk()) return s.toString();
    if (values[0] != 3) return "wrong sum";

    Floats other(size_t(rank), 1);
    const Status apart = sumIn(client, set.value(), &other, "shape");
    if (apart.code() != Code::kMismatch) return problem("not refused", apart);

    for (int i = 0; i < 20; ++i)
      if (const Status s = sumIn(client, set.value(), &values); !s.isOk()) return s.toString();
    const auto last = client.join(set.value(), false);
    return problem("join", last.status());
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("a rank that has joined a set is no longer waited for on its board") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({0, 2});
    if (rank == 1) return problem("add", set.status());
    Floats values = {5};
    for (int i = 0; i < 3 && rank == 0; ++i)
      if (const Status s = sumIn(client, set.value(), &values); !s.isOk()) return s.toString();
    if (values[0] != 5) return "wrong sum";
    return problem("join", client.join(set.value(), false).status());
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

namespace {

// Runs `kind` over `count` floats alone in `set`; what is wrong with its result.
std::string runAlone(Client& client, uint32_t set, OpKind kind, size_t count, bool isOwn) {
  Floats foreign(2 * count + 1, 0);
  float* input = foreign.data();
  if (isOwn) input = reinterpret_cast<float*>(client.memory().allocate(2 * count * 4 + 4).value());
  for (size_t i = 0; i < count; ++i) input[i] = float(i + 1);
  float* const output = kind == OpKind::kBroadcast ? input : input + count;
  const std::vector<int64_t> shape = {static_cast<int64_t>(count)};
  Operation op = rueda::kit::shaped(kind, "alone", shape);
  op.processSet = set;
  op.root = client.rank();
  op.input = input;
  op.output = output;
  op.outputRoom = count * 4;
  std::string wrong = problem(rueda::shm::opKindName(kind), client.run(op));
  for (size_t i = 0; i < count && wrong.empty(); ++i)
    if (output[i] != float(i + 1)) wrong = "wrong value";
  if (isOwn) wrong += problem("free", client.memory().free(input));
  return wrong;
}

}  // namespace

// Once a broadcast of more than 2 KiB in the arena waited for receivers, of which there were none.
TEST_CASE("a rank alone in a set runs everything by itself") {
  DaemonFixture daemon;
  const OpKind kind = GENERATE(OpKind::kAllreduce, OpKind::kBroadcast, OpKind::kAllgather,
                               OpKind::kAlltoall, OpKind::kReducescatter);
  const auto body = [kind](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({1});
    if (rank != 1) return problem("add", set.status());
    std::string wrong;
    for (const size_t count : {0, 1, 100, 1000, 200000})
      for (const bool isOwn : {false, true})
        wrong += runAlone(client, set.value(), kind, count, isOwn);
    return wrong;
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("a broadcast comes from its root also while its set is being removed") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    std::string wrong;
    for (int round = 0; round < 40 && wrong.empty(); ++round) {
      const auto set = client.addProcessSet({0, 1});
      if (!set.isOk()) return problem("add", set.status());
      std::atomic<int> steps{0};
      std::atomic<bool> isOver{false};
      std::string said;
      std::thread worker([&] {
        const std::vector<int64_t> one = {1};
        Status ended;
        while (rank < 2 && ended.isOk() && said.empty()) {
          float value = float(10 + rank);
          Operation op = rueda::kit::broadcast("b", one, &value, 1);
          op.processSet = set.value();
          ended = client.run(op);
          if (ended.isOk() && value != 11) said = "a value that is not the root's";
          ++steps;
        }
        if (rank < 2 && ended.code() != Code::kUnavailable &&
            ended.code() != Code::kInvalidArgument)
          said = ended.toString();
        isOver = true;
      });
      while (!isOver && steps.load() < 10) std::this_thread::yield();
      wrong += problem("remove", client.removeProcessSet(set.value()));
      worker.join();
      wrong += said;
    }
    return wrong;
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("sets beyond those that have boards work, too") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    uint32_t set = 0;
    for (int64_t bits = 1; bits < 31; ++bits) {
      std::vector<int64_t> ranks;
      for (int64_t member = 0; member < 5; ++member)
        if ((bits >> member & 1) != 0) ranks.push_back(member);
      const auto added = client.addProcessSet(ranks);
      if (!added.isOk()) return problem("add", added.status());
      set = added.value();
      Floats values = {1};
      const bool isMember = (bits >> rank & 1) != 0;
      if (!isMember) continue;
      if (const Status s = sumIn(client, set, &values); !s.isOk()) return s.toString();
      if (values[0] != float(ranks.size())) return "wrong sum";
    }
    return set > rueda::shm::kBoards ? "" : "too few sets";
  };
  CHECK(runRanks(daemon, 5, body) == "");
}
