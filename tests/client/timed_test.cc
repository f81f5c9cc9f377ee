// SPDX-License-Identifier: Apache-2.0

// What rank 0's timeline holds after operations of real ranks and the engine.

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/kit/capture_stderr.h"
#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"
#include "tests/kit/temp_dir.h"
#include "tests/kit/trace.h"
#include "tests/kit/two_ranks.h"

namespace {

using nlohmann::json;
using rueda::client::Client;
using rueda::client::Operation;
using rueda::client::Options;
using rueda::kit::DaemonFixture;
using rueda::kit::problem;
using rueda::kit::runRanks;
using rueda::kit::TempDir;
using rueda::kit::traceOf;
using rueda::kit::wordsByName;
using rueda::shm::Code;
using rueda::shm::OpKind;
using rueda::shm::ReduceOp;
using rueda::shm::Status;
using std::chrono::milliseconds;
using Words = std::vector<std::string>;
using Floats = std::vector<float>;

const std::vector<int64_t> kShape = {4};

void makeDynamic(Options* options) { options->timeline = "DYNAMIC"; }

// Ranks whose operations of `body` are in the file.
std::string traced(const DaemonFixture& daemon, int size, const std::string& path,
                   const rueda::kit::RankBody& body, bool isIsolated = false) {
  return runRanks(
      daemon, size,
      [&](Client& client, int rank) {
        std::string wrong = problem("start", client.startTimeline(path, true));
        wrong += body(client, rank);
        return wrong + problem("stop", client.stopTimeline());
      },
      [isIsolated](Options* options) {
        makeDynamic(options);
        options->isolated = isIsolated;
      });
}

// What begins in the events of a name, and how many ranks came.
struct Summary {
  explicit Summary(const Words& words) {
    for (const std::string& word : words) {
      if (word[0] == 'B') begins.push_back(word.substr(2));
      if (word[0] == 'X') ranks.push_back(word.substr(2));
    }
    std::sort(ranks.begin(), ranks.end());
  }
  Words begins;
  Words ranks;
};

// All kinds, blocking, as `size` ranks see them.
std::string runAllKinds(Client& client, int size) {
  std::string wrong;
  Floats in(4, 1), out(4);
  const Operation sum = rueda::kit::allreduce("sum", kShape, in.data(), out.data());
  wrong += problem("sum", client.run(sum));
  if (out[0] != static_cast<float>(size)) wrong += "wrong sum; ";
  Operation adasum = rueda::kit::allreduce("adasum", kShape, in.data(), out.data());
  adasum.reduceOp = ReduceOp::kAdasum;
  wrong += problem("adasum", client.run(adasum));
  wrong += problem("broadcast", client.run(rueda::kit::broadcast("bcast", kShape, in.data(), 0)));
  Operation scatter = rueda::kit::shaped(OpKind::kReducescatter, "scatter", kShape);
  scatter.input = in.data();
  scatter.output = out.data();
  wrong += problem("scatter", client.run(scatter));
  void* result = nullptr;
  Operation gather = rueda::kit::allgather("gather", kShape, in.data());
  gather.result = &result;
  wrong += problem("gather", client.run(gather));
  wrong += problem("free", client.memory().free(result));
  const std::vector<int64_t> rows = {size};
  Floats sent(static_cast<size_t>(size), 1);
  Operation deal = rueda::kit::alltoall("deal", rows, sent.data(), {});
  deal.result = &result;
  wrong += problem("alltoall", client.run(deal));
  wrong += problem("free", client.memory().free(result));
  wrong += problem("barrier", client.run(rueda::kit::barrier("barrier")));
  return wrong + problem("join", client.join(0, false).status());
}

}  // namespace

TEST_CASE("operations of every kind are in the timeline, with one tick for each rank") {
  DaemonFixture daemon;
  const TempDir folder;
  const std::string path = folder.file("t.json");
  const int size = GENERATE(1, 2, 3);
  const bool isIsolated = GENERATE(false, true);
  REQUIRE(traced(
              daemon, size, path, [&](Client& client, int) { return runAllKinds(client, size); },
              isIsolated) == "");
  const json trace = traceOf(path);
  REQUIRE(trace.is_array());
  CHECK(rueda::kit::nestingProblem(trace) == "");
  auto words = wordsByName(trace);
  const std::string copyOut = "MEMCPY_OUT_SHARED_BUFFER";
  CHECK(Summary(words["sum"]).begins ==
        Words{"NEGOTIATE_ALLREDUCE", "ALLREDUCE", "QUEUE", "SHM_ALLREDUCE", copyOut});
  CHECK(Summary(words["adasum"]).begins ==
        Words{"NEGOTIATE_ADASUM", "ADASUM", "QUEUE", "SHM_ADASUM_ALLREDUCE", copyOut});
  CHECK(Summary(words["bcast"]).begins ==
        Words{"NEGOTIATE_BROADCAST", "BROADCAST", "QUEUE", "SHM_BCAST", copyOut});
  CHECK(Summary(words["scatter"]).begins ==
        Words{"NEGOTIATE_REDUCESCATTER", "REDUCESCATTER", "QUEUE", "SHM_REDUCESCATTER", copyOut});
  CHECK(Summary(words["gather"]).begins ==
        Words{"NEGOTIATE_ALLGATHER", "ALLGATHER", "COPY_ALLGATHER_OUTPUT"});
  CHECK(Summary(words["deal"]).begins == Words{"NEGOTIATE_ALLTOALL", "ALLTOALL", "SHM_ALLTOALL"});
  CHECK(Summary(words["barrier"]).begins == Words{"NEGOTIATE_BARRIER", "BARRIER"});
  CHECK(Summary(words[".join"]).begins == Words{"NEGOTIATE_JOIN", "JOIN"});
  for (const auto& [name, events] : words) {
    INFO(name);
    CHECK(Summary(events).ranks.size() == static_cast<size_t>(size));
  }
}

TEST_CASE("the ticks say who was late, also of operations that the daemon slept through") {
  DaemonFixture daemon;
  const TempDir folder;
  const std::string path = folder.file("t.json");
  const bool isBlocking = GENERATE(false, true);
  const auto body = [isBlocking](Client& client, int rank) {
    Floats data(4, 1);
    // What both have just done together: the next one begins at about the same time.
    std::string wrong = problem("barrier", client.run(rueda::kit::barrier("b")));
    if (rank == 1) std::this_thread::sleep_for(milliseconds(80));
    const Operation op = rueda::kit::allreduce("late", kShape, data.data(), data.data());
    if (isBlocking) return wrong + problem("run", client.run(op));
    std::vector<uint64_t> handles;
    wrong += problem("submit", client.submit({op}, &handles));
    return wrong + problem("wait", client.wait(handles[0], milliseconds(0)));
  };
  REQUIRE(traced(daemon, 2, path, body) == "");
  int64_t ticks[2] = {};
  for (const auto& event : traceOf(path))
    if (event["ph"] == "X") ticks[std::stoi(std::string(event["name"]))] = event["ts"];
  CHECK(ticks[1] - ticks[0] > 25000);  // A loaded machine may take its time with rank 0, too.
}

TEST_CASE("members of a group wait for its last one") {
  DaemonFixture daemon;
  const TempDir folder;
  const std::string path = folder.file("t.json");
  std::atomic<bool> hasGroup{false};
  const auto body = [&hasGroup](Client& client, int rank) {
    Floats data(8, 1);
    const Operation first = rueda::kit::allreduce("g0", kShape, data.data(), data.data());
    const Operation last = rueda::kit::allreduce("g1", kShape, data.data() + 4, data.data() + 4);
    std::vector<uint64_t> handles;
    std::string wrong;
    if (rank == 0) {
      wrong = problem("group", client.submit({first, last}, &handles));
      hasGroup = true;
    } else {
      while (!hasGroup) std::this_thread::yield();
      std::vector<uint64_t> one;
      for (const Operation& op : {first, last}) {
        wrong += problem("one", client.submit({op}, &one));
        handles.push_back(one[0]);
        // So that the daemon sees the first one before there is the second one.
        if (handles.size() == 1) wrong += problem("poll", client.poll(one[0]).status());
        std::this_thread::sleep_for(milliseconds(5));
      }
    }
    for (const uint64_t handle : handles)
      wrong += problem("wait", client.wait(handle, milliseconds(0)));
    return wrong;
  };
  REQUIRE(traced(daemon, 2, path, body) == "");
  auto words = wordsByName(traceOf(path));
  CHECK(Summary(words["g0"]).begins[2] == "WAIT_FOR_OTHER_TENSOR_DATA");
}

TEST_CASE("operations that fail, or that nobody waits for, are there with an end") {
  DaemonFixture daemon;
  const TempDir folder;
  const std::string path = folder.file("t.json");
  const auto body = [](Client& client, int rank) -> std::string {
    Floats data(4, 1);
    const std::vector<int64_t> shape = {2 + rank};
    const Status status =
        client.run(rueda::kit::allreduce("differs", shape, data.data(), data.data()));
    if (status.code() != Code::kMismatch) return problem("no mismatch", status) + "none; ";
    std::vector<uint64_t> handles;
    std::string wrong;
    if (rank == 0)
      wrong =
          problem("submit",
                  client.submit({rueda::kit::allreduce("alone", kShape, data.data(), data.data())},
                                &handles));
    return wrong;
  };
  REQUIRE(runRanks(
              daemon, 2,
              [&](Client& client, int rank) {
                const std::string wrong = problem("start", client.startTimeline(path, false));
                return wrong + body(client, rank);
              },
              makeDynamic) == "");
  const json trace = traceOf(path);
  CHECK(rueda::kit::nestingProblem(trace) == "");
  INFO(rueda::kit::textOf(path));
  auto words = wordsByName(trace);
  CHECK(Summary(words["differs"]).begins == Words{"NEGOTIATE_ALLREDUCE"});
  CHECK(Summary(words["differs"]).ranks == Words{"0", "1"});
  CHECK(words["alone"] == Words{"B NEGOTIATE_ALLREDUCE", "X 0", "E"});
  for (const auto& event : trace)
    if (event["ph"] == "E" && event.contains("args") && event["args"].contains("error"))
      CHECK(std::string(event["args"]["error"]).size() > 10);
}

TEST_CASE("a smaller process set has the ticks of its ranks, by their numbers in the job") {
  DaemonFixture daemon;
  const TempDir folder;
  const std::string path = folder.file("t.json");
  const auto body = [](Client& client, int rank) -> std::string {
    const auto set = client.addProcessSet({0, 2});
    if (!set.isOk()) return problem("add", set.status());
    Floats data(4, 1);
    Operation op = rueda::kit::allreduce("x", kShape, data.data(), data.data());
    op.processSet = set.value();
    std::string wrong = rank == 1 ? "" : problem("run", client.run(op));
    return wrong + problem("remove", client.removeProcessSet(set.value()));
  };
  REQUIRE(traced(daemon, 3, path, body) == "");
  auto words = wordsByName(traceOf(path));
  CHECK(Summary(words["x of process set 1"]).ranks == Words{"0", "2"});
  CHECK(Summary(words[".add process set"]).ranks.size() == 3);
}

TEST_CASE("after a timeline the ranks meet on the direct path again") {
  DaemonFixture daemon;
  const TempDir folder;
  const auto body = [&](Client& client, int rank) {
    std::string wrong;
    for (int i = 0; i < 60; ++i) {
      if (i % 20 == 5) wrong += problem("start", client.startTimeline(folder.file("t"), false));
      if (i % 20 == 15) wrong += problem("stop", client.stopTimeline());
      Floats data(static_cast<size_t>(i % 3 == 0 ? 100000 : 4), static_cast<float>(rank + i));
      const std::vector<int64_t> shape = {static_cast<int64_t>(data.size())};
      wrong +=
          problem("run", client.run(rueda::kit::allreduce("x", shape, data.data(), data.data())));
      if (data.back() != static_cast<float>(3 + 3 * i)) wrong += std::to_string(i) + " is wrong; ";
    }
    return wrong;
  };
  CHECK(runRanks(daemon, 3, body, makeDynamic) == "");
  // Of each twenty those from 5 to 14 were timed; some more find the ranks together again.
  const auto view = daemon.state();
  REQUIRE(view.jobs.size() <= 1);
  CHECK(wordsByName(traceOf(folder.file("t")))["x"].size() == 10 * 13);
}

TEST_CASE("a path is written from the start, and one that cannot be does not stop the job") {
  DaemonFixture daemon;
  const TempDir folder;
  const std::string path = folder.file(GENERATE("t.json", "no/t.json"));
  const auto body = [](Client& client, int) {
    return problem("barrier", client.run(rueda::kit::barrier("b")));
  };
  rueda::kit::CaptureStderr capture;
  const std::string wrong = runRanks(daemon, 2, body, [&path](Options* options) {
    options->timeline = path;
    options->marksCycles = true;
  });
  const std::string text = capture.text();
  CHECK(wrong == "");
  if (path.find("no/") == std::string::npos) {
    CHECK(rueda::kit::textOf(path).find("CYCLE_START") != std::string::npos);
    CHECK(text == "");
  } else {
    CHECK(text == "rueda: cannot write the timeline '" + path +
                      "': No such file or directory; the job runs without one\n");
  }
}

TEST_CASE("where no timeline is enabled there is none to start or stop") {
  DaemonFixture daemon;
  const TempDir folder;
  const rueda::kit::TwoRanks ranks(daemon);
  REQUIRE(ranks.areOpen());
  for (const auto& client : ranks.clients) {
    CHECK(client->startTimeline(folder.file("t"), false).code() == Code::kInvalidArgument);
    CHECK_THAT(client->stopTimeline().message(), Catch::Contains("HOROVOD_TIMELINE"));
  }
}
