// SPDX-License-Identifier: Apache-2.0

// What is said of ranks that wait for each other, and when (daemon/engine/watch.h).

#include <catch2/catch.hpp>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/engine/watch.h"
#include "tests/engine/made_job.h"
#include "tests/kit/capture_stderr.h"

namespace {

using rueda::engine::test::kStart;
using rueda::engine::test::Made;
using rueda::flow::Request;

// A "pid" is the number of threads that the process has: the kernel is not asked.
uint64_t threadsOf(pid_t pid) { return static_cast<uint64_t>(pid); }

std::string deadlockLines(Made* made, bool atTick = false) {
  rueda::base::initLog(rueda::base::LogLevel::kWarning, true);
  rueda::kit::CaptureStderr capture;
  reportDeadlock(&made->job, atTick, threadsOf);
  return capture.text();
}

}  // namespace

TEST_CASE("a deadlock is logged when the last rank goes to sleep, and once") {
  Made made(2, 1);
  made.submit(0, "a");
  CHECK(deadlockLines(&made) == "");
  made.sleep(1, 1, "b");
  CHECK_THAT(deadlockLines(&made),
             Catch::Contains("job 'train' is deadlocked: rank 0 waits for allreduce 'a'; rank 1 "
                             "waits for allreduce 'b'\n"));
  CHECK_FALSE(made.job.reportedDeadlock.empty());
  CHECK(deadlockLines(&made) == "");
}

// Once that was called a deadlock, though a thread that the daemon had not heard of yet was about
// to submit what the others waited for.
TEST_CASE("where a process has other threads a deadlock is a guess, and comes after two ticks") {
  Made made(2, 2);
  made.submit(0, "a");
  made.sleep(1, 1, "b");
  CHECK(deadlockLines(&made) == "");
  CHECK(made.job.reportedDeadlock.empty());
  CHECK(deadlockLines(&made, true) == "");
  SECTION("nothing moves") {
    CHECK_THAT(
        deadlockLines(&made, true),
        Catch::Contains("job 'train' may be deadlocked: rank 0 waits for allreduce 'a'; rank "
                        "1 waits for allreduce 'b'; ranks [0, 1] have other threads, which "
                        "may submit what is missing\n"));
    CHECK_FALSE(made.job.reportedDeadlock.empty());
    CHECK(deadlockLines(&made, true) == "");
  }
  SECTION("a rank was awake at the tick between") {
    const auto waits = std::exchange(made.job.directWaits, {});
    CHECK(deadlockLines(&made, true) == "");
    made.job.directWaits = waits;
    CHECK(deadlockLines(&made, true) == "");
    CHECK_THAT(deadlockLines(&made, true), Catch::Contains("may be deadlocked"));
  }
  SECTION("the other threads sleep, too") {
    made.submit(0, "c");
    made.submit(1, "d");
    CHECK(deadlockLines(&made) == "");  // They have been looked at since the last tick.
    CHECK_THAT(deadlockLines(&made, true), Catch::Contains("job 'train' is deadlocked"));
  }
}

// Once the guess was the last word, though the other threads had ended.
TEST_CASE("a guess is corrected when the other threads have ended") {
  Made made(2, 2);
  made.submit(0, "a");
  made.sleep(1, 1, "b");
  CHECK(deadlockLines(&made, true) == "");
  CHECK_THAT(deadlockLines(&made, true), Catch::Contains("job 'train' may be deadlocked"));
  made.job.members[0].pid = 1;
  CHECK(deadlockLines(&made, true) == "");
  made.job.members[1].pid = 1;
  CHECK_THAT(deadlockLines(&made, true), Catch::Contains("job 'train' is deadlocked"));
  CHECK(deadlockLines(&made, true) == "");
}

// Once a thread that lived for a moment made every later deadlock of the job a matter of two ticks.
TEST_CASE("after a tick a thread that has ended no longer makes a deadlock a guess") {
  Made made(2, 2);
  made.submit(0, "a");
  made.sleep(1, 1, "b");
  CHECK(deadlockLines(&made) == "");
  for (rueda::engine::Member& member : made.job.members) member.pid = 1;
  made.job.directWaits.clear();
  CHECK(deadlockLines(&made, true) == "");
  made.sleep(1, 2, "c");
  CHECK_THAT(deadlockLines(&made), Catch::Contains("job 'train' is deadlocked"));
}

TEST_CASE("where the kernel does not tell how many threads there are a deadlock is a guess") {
  // Once it was said to be known that they have others.
  Made made(2, 0);
  made.submit(0, "a");
  made.sleep(1, 1, "b");
  CHECK(deadlockLines(&made, true) == "");
  SECTION("of any rank") {
    CHECK_THAT(deadlockLines(&made, true),
               Catch::Contains("may be deadlocked: rank 0 waits for allreduce 'a'; rank 1 waits "
                               "for allreduce 'b'; whether ranks [0, 1] have other threads is not "
                               "known\n"));
  }
  SECTION("of one of them") {
    made.job.members[0].pid = 2;
    CHECK_THAT(deadlockLines(&made, true),
               Catch::Contains("; ranks [0] have other threads, which may submit what is missing; "
                               "whether ranks [1] have other threads is not known\n"));
  }
}

// One rank blocks in an operation that the other has started: on its way to the ring it looked as
// if it slept for ever, and a job that went on at once was called deadlocked.
TEST_CASE("a waiter that has been sent to the ring does not sleep") {
  Made made(2, 1);
  made.submit(1, "x", kStart, false);
  made.submit(1, "z");
  made.sleep(0, 1, "x");
  untangle(&made.job);
  CHECK(deadlockLines(&made) == "");
  CHECK(made.job.reportedDeadlock.empty());
  CHECK(made.job.sleepers()[0].empty());
  // It comes to the ring, and blocks for something else there.
  made.job.directWaits.clear();
  made.submit(0, "y");
  CHECK_THAT(deadlockLines(&made), Catch::Contains("is deadlocked"));
}

TEST_CASE("of ranks that say they have threads a deadlock is believed when nothing moves") {
  // Once the first sleep of one thread, while the other was about to submit, was a deadlock.
  Made made(2, 1);
  made.job.hasThreads = true;
  made.submit(0, "a");
  made.sleep(1, 1, "b");
  CHECK(deadlockLines(&made) == "");
  CHECK(deadlockLines(&made, true) == "");
  CHECK_THAT(deadlockLines(&made, true), Catch::Contains("job 'train' is deadlocked"));
}

TEST_CASE("no deadlock while an operation runs, or when all have posted") {
  Made made(2);
  made.submit(0, "a");
  made.sleep(1, 1, "b");
  made.job.running = 1;
  CHECK(deadlockLines(&made) == "");
  made.job.running = 0;
  made.post(0, 1);  // Another thread of rank 0 is on the board.
  CHECK(deadlockLines(&made) == "");
  CHECK(made.job.reportedDeadlock.empty());
}

// Ranks with several blocking threads were called deadlocked again and again while another of their
// threads was awake: up to a hundred lines in a second.
TEST_CASE("a rank with several threads is deadlocked only when nothing moves between two ticks") {
  Made made(2, 3);
  made.submit(0, "a");
  made.submit(0, "b");
  made.submit(1, "c");
  CHECK(deadlockLines(&made).empty());
  CHECK(deadlockLines(&made, true).empty());
  SECTION("nothing moved") {
    CHECK_THAT(deadlockLines(&made, true), Catch::Contains("may be deadlocked"));
    CHECK(deadlockLines(&made, true).empty());
  }
  SECTION("an operation has ended in between") {
    ++made.job.opsCompleted;
    CHECK(deadlockLines(&made, true).empty());
  }
}

TEST_CASE("what a join has completed is no deadlock, though it has not run yet") {
  // The rank that joined and the one that blocks both sleep, and neither has all ranks.
  Made made(2);
  Request join = rueda::kit::makeRequest(0, ".join");
  join.spec.kind = rueda::shm::OpKind::kJoin;
  REQUIRE(made.job.sets.add(&join).isOk());
  made.job.requestWaits[0][77] = {"join '.join'", 2};
  made.submit(1, "x");
  REQUIRE(made.job.sets.hasReady());
  rueda::engine::reportDeadlock(&made.job, true);
  CHECK(made.job.reportedDeadlock.empty());
  made.job.runnable = made.job.sets.takeReady();  // Waits for the end of a cycle.
  rueda::engine::reportDeadlock(&made.job, true);
  CHECK(made.job.reportedDeadlock.empty());
}
