// SPDX-License-Identifier: Apache-2.0

// Process sets over real clients and the engine.

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>

#include "tests/engine/set_sum.h"
#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::engine::test::Floats;
using rueda::engine::test::sumIn;
using rueda::kit::DaemonFixture;
using rueda::kit::problem;
using rueda::kit::runRanks;
using rueda::shm::Code;
using rueda::shm::OpKind;
using rueda::shm::Result;
using rueda::shm::Status;
using std::chrono::milliseconds;

Result<Floats> gatherIn(Client& client, uint32_t set, const Floats& rows, OpKind kind,
                        const std::vector<int64_t>& splits = {}) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(rows.size())};
  Operation op = rueda::kit::shaped(kind, "rows", shape);
  op.input = rows.data();
  op.processSet = set;
  if (!splits.empty()) {
    op.splits = splits.data();
    op.splitCount = static_cast<uint32_t>(splits.size());
  }
  std::vector<uint64_t> handles;
  RUEDA_RETURN_IF_ERROR(client.submit({op}, &handles));
  RUEDA_RETURN_IF_ERROR(client.wait(handles[0], milliseconds(0)));
  const auto* gathered = client.gathered(handles[0]);
  Floats result(gathered->bytes / sizeof(float));
  std::memcpy(result.data(), gathered->data, gathered->bytes);
  RUEDA_RETURN_IF_ERROR(client.release(handles[0]));
  return result;
}

}  // namespace

TEST_CASE("all ranks get the same number for a new set, whether they belong to it or not") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    const auto odd = client.addProcessSet({3, 1});
    const auto even = client.addProcessSet({0, 2});
    if (!odd.isOk() || !even.isOk())
      return problem("odd", odd.status()) + problem("even", even.status());
    if (odd.value() != 1 || even.value() != 2) return "wrong numbers";
    const auto again = client.addProcessSet({1, 3});
    if (again.status().code() != Code::kAlreadyExists) return "a set of the same ranks";
    if (!client.removeProcessSet(1).isOk()) return "remove";
    const auto next = client.addProcessSet({0, 1, 2});
    return next.isOk() && next.value() == 1 ? "" : "number 1 is not used again";
  };
  CHECK(runRanks(daemon, 4, body) == "");
}

// Once the ranks' numbers had those of all sets, and the job's those of the set of all ranks.
TEST_CASE("what the ranks of a set do without the daemon counts for them and for the job") {
  DaemonFixture daemon;
  constexpr uint64_t kTimes = 50;
  rueda::flow::JobView job;
  const auto body = [&daemon, &job](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({0, 2});
    Floats values = {1};
    for (uint64_t i = 0; i < kTimes && rank != 1; ++i)
      if (const Status s = sumIn(client, set.value(), &values); !s.isOk()) return s.toString();
    const auto op = rueda::kit::barrier("all");
    if (const Status s = client.run(op); !s.isOk()) return s.toString();
    if (rank == 0) job = daemon.state().jobs.at(0);
    return problem("end", client.run(op));
  };
  CHECK(runRanks(daemon, 3, body) == "");
  REQUIRE(job.ranks.size() == 3);
  CHECK(job.opsDirect >= kTimes);
  CHECK(job.opsDirect <= job.ranks[0].direct);
  CHECK(job.ranks[1].direct < kTimes);
}

TEST_CASE("every kind of operation runs among the ranks of a set, in or out of the daemon") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  const auto body = [](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({0, 2, 3});
    if (!set.isOk()) return problem("add", set.status());
    if (rank == 1) return "";
    const int place = rank == 0 ? 0 : rank - 1;
    Floats sum = {float(rank), 1};
    std::string wrong = problem("sum", sumIn(client, set.value(), &sum));
    if (sum != Floats{5, 3}) wrong += "wrong sum; ";

    Floats source = {float(rank)};
    Operation op = rueda::kit::broadcast("b", {1}, source.data(), 2);
    const std::vector<int64_t> one = {1};
    op.shape = one.data();
    op.processSet = set.value();
    wrong += problem("broadcast", client.run(op));
    if (source != Floats{2}) wrong += "wrong broadcast; ";

    const auto rows =
        gatherIn(client, set.value(), Floats(size_t(place), float(rank)), OpKind::kAllgather);
    if (!rows.isOk() || rows.value() != Floats{2, 3, 3}) wrong += problem("gather", rows.status());
    const auto dealt = gatherIn(client, set.value(), {float(rank), float(rank), float(rank + 10)},
                                OpKind::kAlltoall, {0, 2, 1});
    const std::vector<Floats> expected = {{}, {0, 0, 2, 2, 3, 3}, {10, 12, 13}};
    if (!dealt.isOk() || dealt.value() != expected[size_t(place)])
      wrong += problem("alltoall", dealt.status()) + "alltoall; ";

    const std::vector<int64_t> shape = {4};
    const Floats input(4, float(rank));
    Floats output(2, -1);
    Operation scatter = rueda::kit::allreduce("r", shape, input.data(), output.data());
    scatter.kind = OpKind::kReducescatter;
    scatter.processSet = set.value();
    wrong += problem("reducescatter", client.run(scatter));
    if (output != (place == 0 ? Floats{5, 5} : Floats{5, -1})) wrong += "wrong rows; ";

    Operation barrier = rueda::kit::barrier("barrier");
    barrier.processSet = set.value();
    return wrong + problem("barrier", client.run(barrier));
  };
  const auto adjust = [isIsolated](rueda::client::Options* options) {
    options->isolated = isIsolated;
  };
  CHECK(runRanks(daemon, 4, body, adjust) == "");
}

TEST_CASE("ranks that name other ranks for a set learn so, and go on") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    const auto set =
        client.addProcessSet(rank == 0 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{1});
    if (set.status().message() !=
        "Mismatched process sets for '.add process set': rank 0 has ranks [0, 1], but rank 1 has "
        "ranks [1]")
      return set.status().toString();
    Floats values = {1};
    const std::string wrong = problem("afterwards", sumIn(client, 0, &values));
    return wrong + (values[0] == 2 ? "" : "wrong sum");
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("who does not belong to a set, or names none that there is, is told so at once") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({0, 1});
    Floats values = {1};
    const Status unknown = sumIn(client, 9, &values);
    if (unknown.message() != "allreduce 'x': there is no process set 9") return unknown.toString();
    const Status own = sumIn(client, set.value(), &values);
    if (rank < 2) return problem("own", own);
    return own.message() == "allreduce 'x': rank 2 does not belong to process set 1"
               ? ""
               : own.toString();
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("a broadcast's root is a rank of the job, and must belong to the set") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({1, 2});
    if (rank == 0) return "";
    float value = 0;
    const std::vector<int64_t> one = {1};
    Operation op = rueda::kit::broadcast("b", one, &value, 0);
    op.processSet = set.value();
    const Status status = client.run(op);
    return status.message() == "broadcast 'b': root 0 is not one of the 2 ranks"
               ? ""
               : status.toString();
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("one name is in flight in several sets at once") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    const auto pair = client.addProcessSet({0, 1});
    const auto rest = client.addProcessSet({1, 2});
    std::vector<uint32_t> sets = {0};
    if (rank < 2) sets.push_back(pair.value());
    if (rank > 0) sets.push_back(rest.value());
    std::vector<Floats> values(sets.size(), Floats{float(rank + 1)});
    std::vector<uint64_t> all;
    const std::vector<int64_t> one = {1};
    for (size_t i = 0; i < sets.size(); ++i) {
      Operation op = rueda::kit::allreduce("x", one, values[i].data(), values[i].data());
      op.processSet = sets[i];
      std::vector<uint64_t> handles;
      const Status status = client.submit({op}, &handles);
      if (!status.isOk()) return problem("submit", status);
      all.push_back(handles[0]);
    }
    for (const uint64_t handle : all)
      if (const Status s = client.wait(handle, milliseconds(0)); !s.isOk())
        return problem("wait", s);
    for (size_t i = 0; i < sets.size(); ++i) {
      const float expected = sets[i] == 0 ? 6 : sets[i] == pair.value() ? 3 : 5;
      if (values[i][0] != expected) return "wrong sum";
    }
    return "";
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("a group is of one process set") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    const auto set = client.addProcessSet({0});
    if (client.rank() == 1) return "";
    float values[2] = {};
    const std::vector<int64_t> one = {1};
    std::vector<Operation> ops = {rueda::kit::allreduce("a", one, &values[0], &values[0]),
                                  rueda::kit::allreduce("b", one, &values[1], &values[1])};
    ops[0].processSet = set.value();
    std::vector<uint64_t> handles;
    const Status status = client.submit(ops, &handles);
    return status.message() == "allreduce 'b' is of process set 0, the first of its group of 1"
               ? ""
               : status.toString();
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("a set that waits does not hold up another one") {
  DaemonFixture daemon;
  std::atomic<bool> mayCome{false};
  const auto body = [&](Client& client, int rank) -> std::string {
    const auto slow = client.addProcessSet({0, 1});
    const auto quick = client.addProcessSet({2, 3});
    Operation barrier = rueda::kit::barrier("b");
    barrier.processSet = rank < 2 ? slow.value() : quick.value();
    if (rank == 1)
      while (!mayCome) std::this_thread::sleep_for(milliseconds(1));
    for (int i = 0; i < 20; ++i)
      if (const Status s = client.run(barrier); !s.isOk()) return problem("barrier", s);
    // Rank 1 comes when the quick set is done: it would never be, if it waited for the slow one.
    if (rank == 2) mayCome = true;
    return "";
  };
  CHECK(runRanks(daemon, 4, body) == "");
}

TEST_CASE("what waits in a set that is removed fails, and the session goes on") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({0, 1});
    if (!set.isOk()) return problem("add", set.status());
    std::vector<uint64_t> handles;
    Floats values = {1};
    const std::vector<int64_t> one = {1};
    Operation op = rueda::kit::allreduce("x", one, values.data(), values.data());
    op.processSet = set.value();
    if (rank == 0)
      if (const Status s = client.submit({op}, &handles); !s.isOk()) return problem("submit", s);
    if (const Status s = client.removeProcessSet(set.value()); !s.isOk())
      return problem("remove", s);
    if (rank == 0) {
      const Status ended = client.wait(handles[0], milliseconds(0));
      if (ended.code() != Code::kUnavailable ||
          ended.message() != "process set 1 was removed while the operation waited in it")
        return ended.toString();
    }
    const Status gone = client.removeProcessSet(set.value());
    if (gone.message() != "there is no process set 1 to remove") return gone.toString();
    return problem("afterwards", sumIn(client, 0, &values));
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("who waits in a set is shown with it, and a lost rank ends its operations too") {
  DaemonFixture daemon;
  std::atomic<bool> seen{false};
  std::thread watcher;
  const auto body = [&](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({0, 2});
    if (rank == 0) {
      Floats values = {1};
      const Status ended = sumIn(client, set.value(), &values, "stuck");
      return ended.code() == Code::kShutDown ? "" : ended.toString();
    }
    while (!seen) std::this_thread::sleep_for(milliseconds(1));
    return "leaves";
  };
  watcher = std::thread([&] {
    seen = daemon.eventually([](const rueda::flow::StateView& view) {
      if (view.jobs.empty() || view.jobs[0].pending.empty()) return false;
      const auto& pending = view.jobs[0].pending[0];
      return pending.name == "stuck" && pending.set == 1 &&
             pending.present == std::vector<int>{0} && pending.missing == std::vector<int>{2};
    });
    seen = true;
  });
  const std::string said = runRanks(daemon, 3, body);
  watcher.join();
  CHECK(said == "rank 1: leaves\nrank 2: leaves\n");
}
