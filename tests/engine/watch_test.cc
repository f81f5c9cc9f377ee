// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/watch.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "daemon/base/log.h"
#include "tests/engine/made_job.h"
#include "tests/kit/capture_stderr.h"
#include "tests/kit/child.h"

namespace {

using namespace std::chrono_literals;
using rueda::engine::pendingOf;
using rueda::engine::test::kStart;
using rueda::engine::test::Made;
using rueda::flow::Request;
using rueda::flow::TimePoint;

std::string stallLines(Made* made, TimePoint now, std::chrono::milliseconds after = 1s) {
  rueda::base::initLog(rueda::base::LogLevel::kWarning, true);
  rueda::kit::CaptureStderr capture;
  reportStalls(&made->job, now, after);
  return capture.text();
}

std::string pid() { return std::to_string(::getpid()); }

}  // namespace

TEST_CASE("a lone sleeper on the board is left to wait for its peers") {
  Made made(2);
  untangle(&made.job);
  made.sleep(0, 1, "x");
  untangle(&made.job);
  CHECK_FALSE(made.isWithdrawn(1));
}

TEST_CASE("a sleeper whose peer is in the ring is sent there") {
  Made made(2);
  made.sleep(0, 1, "x");
  made.submit(1, "x");
  untangle(&made.job);
  CHECK(made.isWithdrawn(1));
}

TEST_CASE("sleepers at different indices can only meet in the ring") {
  Made made(3);
  made.sleep(0, 3, "x");
  made.sleep(1, 4, "x");
  untangle(&made.job);
  CHECK(made.isWithdrawn(3));
  CHECK(made.isWithdrawn(4));
}

TEST_CASE("an operation in the ring that lacks none of the sleepers disturbs nobody") {
  Made made(3);
  made.sleep(0, 1, "x");
  made.submit(0, "async", kStart, false);
  made.submit(1, "async", kStart, false);  // Waits for rank 2, which does not sleep.
  untangle(&made.job);
  CHECK_FALSE(made.isWithdrawn(1));
}

TEST_CASE("an operation that all have posted is not withdrawn, though its sleepers are noted") {
  // Once a sleeper that had not been scheduled yet counted as waiting.
  Made made(2);
  made.sleep(0, 1, "x");
  made.post(1, 1);
  made.submit(1, "y");
  untangle(&made.job);
  CHECK_FALSE(made.isWithdrawn(1));
}

TEST_CASE("sleepers in one set are not sent to the ring for what happens in another") {
  Made made(4);
  REQUIRE(made.job.addSet({1, 3}).value() == 1);
  REQUIRE(made.job.addSet({2, 3}).value() == 2);
  made.sleep(3, 1, "x", kStart, 1);
  made.sleep(2, 2, "x", kStart, 2);
  made.submit(2, "x", kStart, false);  // Of all ranks.
  untangle(&made.job);
  CHECK_FALSE(made.isWithdrawn(1, 1));
  made.submit(1, "x", kStart, true, 1);
  untangle(&made.job);
  CHECK(made.isWithdrawn(1, 1));
  CHECK_FALSE(made.isWithdrawn(2, 2));
}

// Once one that slept on any board made every rank of the job wake the daemon for each start.
TEST_CASE("who sleeps in a set wants its ranks, no others") {
  Made made(4);
  REQUIRE(made.job.addSet({0, 1}).value() == 1);
  made.sleep(0, 1, "x", kStart, 1);
  CHECK(made.job.wants(1));
  for (const int rank : {2, 3}) CHECK_FALSE(made.job.wants(rank));
  made.submit(3, "y", kStart, false);
  CHECK(made.job.wants(2));
  CHECK_FALSE(made.job.wants(3));
}

TEST_CASE("who sleeps in a set that was removed is sent to the ring, to hear of it") {
  Made made(3);
  REQUIRE(made.job.addSet({0, 2}).value() == 1);
  made.sleep(2, 1, "x", kStart, 1);
  std::vector<Request> waiting;
  REQUIRE(made.job.removeSet(1, &waiting).isOk());
  untangle(&made.job);
  CHECK(made.isWithdrawn(1, 1));
  CHECK(made.job.sleepers()[2].empty());
  CHECK(made.job.boards.begunBy(2) == 1);
  for (const int rank : {0, 2}) made.job.leaveBoard(1, rank);
  CHECK(made.job.directWaits.empty());
  CHECK(made.job.boards.begunBy(2) == 1);  // Still counted.
}

TEST_CASE("an operation on the board of a set pends with the set and its ranks") {
  Made made(4);
  REQUIRE(made.job.addSet({1, 3}).value() == 1);
  made.sleep(3, 7, "x", kStart, 1);
  const auto pending = pendingOf(made.job, kStart);
  REQUIRE(pending.size() == 1);
  CHECK(pending[0].set == 1);
  CHECK(pending[0].present == std::vector<int>{3});
  CHECK(pending[0].missing == std::vector<int>{1});
  CHECK(made.job.sleepers()[3].begin()->operation == "allreduce 'x' of process set 1");
}

TEST_CASE("nothing pends in a job at rest") {
  Made made(2);
  CHECK(pendingOf(made.job, kStart).empty());
  CHECK_FALSE(hasOlderThan(made.job, kStart + 1h, 1ms));
}

TEST_CASE("what pends is told with who is there and who is not, oldest first") {
  Made made(3);
  made.submit(1, "young", kStart + 2s);
  made.submit(0, "old", kStart);
  made.submit(2, "old", kStart + 1s);
  const auto pending = pendingOf(made.job, kStart + 5s);
  REQUIRE(pending.size() == 2);
  CHECK(pending[0].name == "old");
  CHECK(pending[0].kind == "allreduce");
  CHECK(pending[0].dtype == "float32");
  CHECK(pending[0].shape == "[4]");
  CHECK(pending[0].ageMs == 5000);
  CHECK(pending[0].present == std::vector<int>{0, 2});
  CHECK(pending[0].missing == std::vector<int>{1});
  CHECK(pending[1].name == "young");
  CHECK(pending[1].ageMs == 3000);
  CHECK(hasOlderThan(made.job, kStart + 5s, 5s));
  CHECK_FALSE(hasOlderThan(made.job, kStart + 5s, 5001ms));
}

TEST_CASE("an operation on the board pends once, with those who have posted") {
  Made made(3);
  made.sleep(0, 7, "x", kStart + 1s);
  made.sleep(1, 7, "x", kStart);
  const auto pending = pendingOf(made.job, kStart + 2s);
  REQUIRE(pending.size() == 1);
  CHECK(pending[0].present == std::vector<int>{0, 1});
  CHECK(pending[0].missing == std::vector<int>{2});
}

TEST_CASE("a clock that seems to go backwards gives an age of zero") {
  Made made(2);
  made.submit(0, "x", kStart);
  CHECK(pendingOf(made.job, kStart - 1s).at(0).ageMs == 0);
}

TEST_CASE("a stopped rank is waited for, even when it has come") {
  rueda::kit::Child child([] {
    for (;;) ::pause();
    return 0;
  });
  child.kill(SIGSTOP);
  child.awaitStop();
  Made made(2);
  made.job.members[1].pid = child.pid();
  made.sleep(0, 1, "x");
  made.post(1, 1);
  auto pending = pendingOf(made.job, kStart);
  REQUIRE(pending.size() == 1);
  CHECK(pending[0].stopped == std::vector<int>{1});
  CHECK(pending[0].missing == std::vector<int>{1});
  CHECK(pending[0].present == std::vector<int>{0});
  CHECK(describePending(made.job, pending[0]) ==
        "allreduce 'x' waits since 0 ms for ranks [1]: rank 1 (pid " + std::to_string(child.pid()) +
            " on host a) is stopped; present are ranks [0]");
}

TEST_CASE("a description names at most four ranks") {
  Made made(8);
  made.submit(0, "x\n", kStart);
  const std::string text = describePending(made.job, pendingOf(made.job, kStart + 1s).at(0));
  CHECK(text.find(
            "allreduce 'x\\x0a' waits since 1000 ms for ranks [1, 2, 3, 4, 5, 6, 7]: rank 1 ") ==
        0);
  CHECK(text.find("rank 4 (pid " + pid() + " on host a); present are ranks [0]") !=
        std::string::npos);
}

TEST_CASE("a stall is told once it is old enough, then at doubling distances") {
  Made made(2);
  made.submit(0, "x", kStart);
  CHECK(stallLines(&made, kStart + 999ms) == "");
  CHECK_THAT(stallLines(&made, kStart + 1s), Catch::Contains("job 'train': allreduce 'x' waits"));
  CHECK(stallLines(&made, kStart + 1900ms) == "");
  CHECK(stallLines(&made, kStart + 2s) != "");
  CHECK(stallLines(&made, kStart + 3900ms) == "");
  CHECK(stallLines(&made, kStart + 4s) != "");
}

TEST_CASE("a stall that ends and comes again is told again") {
  Made made(2);
  made.submit(0, "x", kStart);
  CHECK(stallLines(&made, kStart + 1s) != "");
  made.submit(1, "x", kStart + 1100ms);
  CHECK(stallLines(&made, kStart + 1200ms) == "");
  made.submit(0, "x", kStart + 1300ms);
  CHECK(stallLines(&made, kStart + 2300ms) != "");
}

TEST_CASE("of many stalls ten are told at a time, and how many more there are") {
  Made made(2);
  for (int i = 0; i < 25; ++i) made.submit(0, "t" + std::to_string(i), kStart);
  const std::string text = stallLines(&made, kStart + 1s);
  CHECK(std::count(text.begin(), text.end(), '\n') == 11);
  CHECK_THAT(text, Catch::Contains("job 'train': and 15 more operations wait"));
}

TEST_CASE("a sum at work is no stall") {
  Made made(2);
  made.sleep(0, 1, "x");
  made.post(1, 1);
  CHECK(stallLines(&made, kStart + 10s) == "");
}

TEST_CASE("a join may wait for ranks that run, but not for one that is stopped") {
  rueda::flow::PendingView pending;
  pending.missing = {1, 2};
  CHECK_FALSE(rueda::engine::isNoFault(pending));
  pending.mayWait = true;
  CHECK(rueda::engine::isNoFault(pending));
  pending.stopped = {0};
  CHECK(rueda::engine::isNoFault(pending));
  pending.stopped = {0, 2};
  CHECK_FALSE(rueda::engine::isNoFault(pending));
}
