// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/jobs.h"

#include <catch2/catch.hpp>

#include "tests/kit/flow_maker.h"

namespace {

using rueda::engine::Job;
using rueda::engine::Jobs;
using rueda::engine::Member;
using rueda::flow::Outcome;
using rueda::shm::Code;
using rueda::shm::Fd;
using rueda::shm::Status;
using rueda::submit::Greeting;
using rueda::submit::Quota;
using rueda::submit::QuotaLimits;
using rueda::submit::Session;

// Jobs of fake sessions, with the notices that they would have been sent.
class Office {
 public:
  Office()
      : quota_(limits()),
        jobs(quota_, disposer, [this](rueda::flow::SessionId id, const auto& notice) {
          notices.push_back(std::to_string(id) + ": " + notice.text);
        }) {}

  rueda::shm::Result<Job*> join(uid_t uid, const std::string& id, int rank, int size,
                                bool isolated = false) {
    sessions_.push_back(std::make_unique<Session>(++lastSession, Fd(),
                                                  rueda::shm::PeerCredentials{100 + rank, uid, 0},
                                                  rueda::flow::TimePoint{}));
    Greeting greeting;
    greeting.job = id;
    greeting.hostname = "a";
    greeting.rank = rank;
    greeting.size = size;
    greeting.isolated = isolated;
    return jobs.join(*sessions_.back(), greeting);
  }
  uint64_t bytesHeld() const { return quota_.totalBytes(); }

 private:
  static QuotaLimits limits() {
    QuotaLimits limits;
    limits.jobsPerUid = 2;
    limits.bytesPerUid = 2 * rueda::shm::kBoardsBytes + (1 << 20);
    return limits;
  }
  Quota quota_;
  std::vector<std::unique_ptr<Session>> sessions_;

 public:
  rueda::base::Disposer disposer;
  Jobs jobs;
  std::vector<std::string> notices;
  rueda::flow::SessionId lastSession = 0;
};

}  // namespace

TEST_CASE("ranks of one user under one id share a job, all others do not") {
  Office office;
  Job* const job = office.join(1, "train", 0, 2).value();
  CHECK(office.join(1, "train", 1, 2).value() == job);
  CHECK(office.join(1, "other", 0, 2).value() != job);
  CHECK(office.join(2, "train", 0, 2).value() != job);
  CHECK(office.jobs.all().size() == 3);
  CHECK(office.jobs.totalRanks() == 6);
  CHECK(job->ranksIn(Member::State::kRunning) == std::vector<int>{0, 1});
  CHECK(job->describe(1) == "rank 1 (pid 101 on host a)");
}

TEST_CASE("who does not fit into the job is refused with the reason, and takes nothing") {
  Office office;
  REQUIRE(office.join(1, "train", 0, 2).isOk());
  CHECK(office.join(1, "train", 0, 2).status().message() ==
        "job 'train': rank 0 (pid 100 on host a) is connected already");
  CHECK(office.join(1, "train", 1, 3).status().message() ==
        "job 'train' has 2 ranks, rank 1 was started for 3");
  CHECK(office.join(1, "train", 1, 2, true).status().code() == Code::kMismatch);
  CHECK(office.join(1, "train", 1, 2).isOk());
}

TEST_CASE("jobs of a user are limited, and come back when they are removed") {
  Office office;
  Job* const first = office.join(1, "a", 0, 1).value();
  REQUIRE(office.join(1, "b", 0, 1).isOk());
  CHECK(office.join(1, "c", 0, 1).status().code() == Code::kResourceExhausted);
  CHECK(office.join(2, "c", 0, 1).isOk());
  const auto serial = first->serial;
  office.jobs.leave(first, 0, Member::State::kLeft, "left");
  office.jobs.removeIfEmpty(serial);
  CHECK(office.jobs.find(serial) == nullptr);
  CHECK(office.join(1, "c", 0, 1).isOk());
}

TEST_CASE("a job whose boards do not fit into the quota is refused, and takes nothing") {
  Office office;
  Job* const job = office.join(1, "a", 0, 1).value();
  const auto segment = office.jobs.addSegment(job, 0, 2 << 20);
  REQUIRE(segment.isOk());
  const auto refused = office.join(1, "b", 0, 1);
  CHECK(refused.status().code() == Code::kResourceExhausted);
  CHECK_THAT(refused.status().message(), Catch::Contains("bytes of shared memory of uid 1: holds"));
  CHECK(office.jobs.all().size() == 1);
  const auto serial = job->serial;
  office.jobs.leave(job, 0, Member::State::kLeft, "left");
  office.jobs.removeIfEmpty(serial);
  CHECK(office.join(1, "b", 0, 1).isOk());
  CHECK(office.join(1, "c", 0, 1).isOk());
}

TEST_CASE("a job is removed only when no rank is left and nothing runs, with its memory") {
  Office office;
  Job* const job = office.join(1, "train", 0, 1).value();
  const auto serial = job->serial;
  REQUIRE(office.jobs.addSegment(job, 0, 8192).isOk());
  CHECK(office.bytesHeld() == 8192);
  job->running = 1;
  office.jobs.removeIfEmpty(serial);
  CHECK(office.jobs.find(serial) == job);
  office.jobs.leave(job, 0, Member::State::kLost, "was killed");
  office.jobs.removeIfEmpty(serial);
  CHECK(office.jobs.find(serial) == job);
  job->running = 0;
  office.jobs.removeIfEmpty(serial);
  CHECK(office.jobs.find(serial) == nullptr);
  CHECK(office.bytesHeld() == 0);
  office.jobs.removeIfEmpty(serial);  // Of nothing: nothing.
}

TEST_CASE("segments are whole pages, numbered, owned, and within the quota") {
  Office office;
  Job* const job = office.join(1, "train", 0, 2).value();
  const auto first = office.jobs.addSegment(job, 1, 4096);
  REQUIRE(first.isOk());
  CHECK(first.value()->id == 1);
  CHECK(first.value()->rank == 1);
  CHECK(first.value()->region().bytes == 4096);
  CHECK(office.jobs.addSegment(job, 0, 4096).value()->id == 2);
  CHECK(job->members[1].arenaBytes == 4096);
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{4097}})
    CHECK(office.jobs.addSegment(job, 0, bytes).status().code() == Code::kProtocolError);
  REQUIRE(office.join(1, "other", 0, 1).isOk());  // With boards of its own.
  CHECK(office.jobs.addSegment(job, 0, 1 << 20).status().code() == Code::kResourceExhausted);
  CHECK(office.bytesHeld() == 8192);
  CHECK(office.jobs.addSegment(job, 0, (1 << 20) - 8192).isOk());
}

TEST_CASE("a job that fails tells its ranks, ends what waits, and keeps its first reason") {
  Office office;
  Job* const job = office.join(1, "train", 0, 2).value();
  REQUIRE(office.join(1, "train", 1, 2).isOk());
  job->state = Job::State::kRunning;
  auto request = rueda::kit::makeRequest(0, "x");
  request.requestId = 9;
  REQUIRE(job->sets.add(&request).isOk());
  std::vector<Outcome> outcomes;
  office.jobs.finish(job, Job::State::kFailed, 1, {Code::kRankLost, "lost rank 1"}, &outcomes);
  CHECK(job->state == Job::State::kFailed);
  CHECK(office.notices == std::vector<std::string>{"1: lost rank 1", "2: lost rank 1"});
  REQUIRE(outcomes.size() == 1);
  CHECK(outcomes[0].requestId == 9);
  CHECK(outcomes[0].status.message() == "lost rank 1");
  CHECK(job->opsFailed == 1);
  CHECK(job->sets.active().empty());
  office.jobs.finish(job, Job::State::kEnded, 0, {Code::kShutDown, "later"}, &outcomes);
  CHECK(job->failure.message() == "lost rank 1");
  CHECK(office.notices.size() == 2);
  CHECK(outcomes.size() == 1);
}

TEST_CASE("a hello after a failure begins a new generation; the old one ends by itself") {
  Office office;
  Job* const old = office.join(1, "train", 0, 2).value();
  REQUIRE(office.join(1, "train", 1, 2).isOk());
  const auto serial = old->serial;
  std::vector<Outcome> outcomes;
  old->state = Job::State::kRunning;
  office.jobs.finish(old, Job::State::kFailed, 1, {Code::kRankLost, "lost"}, &outcomes);
  office.jobs.leave(old, 1, Member::State::kLost, "was killed");
  Job* const anew = office.join(1, "train", 1, 2).value();
  CHECK(anew != old);
  CHECK(anew->serial > serial);
  // The end of the old one does not take the new one's name away.
  office.jobs.leave(old, 0, Member::State::kLeft, "left");
  office.jobs.removeIfEmpty(serial);
  CHECK(office.jobs.find(serial) == nullptr);
  CHECK(office.join(1, "train", 0, 2).value() == anew);
}

TEST_CASE("a rank that leaves a forming job leaves its place open, in a running one not") {
  Office office;
  Job* const job = office.join(1, "train", 0, 2).value();
  office.jobs.leave(job, 0, Member::State::kLost, "was killed");
  CHECK(job->ranksIn(Member::State::kAbsent) == std::vector<int>{0, 1});
  REQUIRE(office.join(1, "train", 0, 2).value() == job);
  REQUIRE(office.join(1, "train", 1, 2).isOk());
  job->state = Job::State::kRunning;
  office.jobs.leave(job, 0, Member::State::kLost, "was killed");
  CHECK(job->ranksIn(Member::State::kLost) == std::vector<int>{0});
  CHECK(job->hasSessions());
}

TEST_CASE("who waits for ranks to join hears what became of those that tried") {
  // Once a rank that died or was refused before its job was complete had "not connected".
  Office office;
  Job* const job = office.join(1, "train", 0, 3).value();
  CHECK(job->describeAbsent("") == "ranks [1, 2] of 3 have not connected");
  REQUIRE(office.join(1, "train", 1, 3).isOk());
  office.jobs.leave(job, 1, Member::State::kLost, "was killed by signal 9");
  Greeting other;
  other.job = "train";
  other.rank = 2;
  office.jobs.noteRefusal(1, other, Status(Code::kMismatch, "no"));
  CHECK(job->describeAbsent(" within 8 s") ==
        "ranks [1, 2] of 3 have not connected within 8 s; rank 1 (pid 101 on host a) was killed by "
        "signal 9; rank 2 was refused: no");
  REQUIRE(office.join(1, "train", 1, 3).isOk());
  CHECK(job->describeAbsent("") == "ranks [2] of 3 have not connected; rank 2 was refused: no");
  other.rank = 99;  // Of a job that he thinks is larger.
  office.jobs.noteRefusal(1, other, Status(Code::kMismatch, "no"));
  office.jobs.noteRefusal(2, other, Status(Code::kMismatch, "no"));
}
