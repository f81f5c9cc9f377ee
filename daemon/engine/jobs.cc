// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/jobs.h"

#include <utility>

#include "daemon/base/log.h"
#include "shm/memfd.h"

namespace rueda::engine {

using shm::Code;
using shm::Result;
using shm::Status;

Status Jobs::checkPlace(const Job& job, const submit::Greeting& greeting) const {
  const std::string name = "job '" + base::printable(job.id) + "'";
  if (greeting.size != job.size)
    return {Code::kMismatch, name + " has " + std::to_string(job.size) + " ranks, rank " +
                                 std::to_string(greeting.rank) + " was started for " +
                                 std::to_string(greeting.size)};
  if (greeting.isolated != job.isolated)
    return {Code::kMismatch, name + ": rank " + std::to_string(greeting.rank) +
                                 " and the others differ " + "in whether memory is isolated"};
  const Member& member = job.members[static_cast<size_t>(greeting.rank)];
  if (member.state == Member::State::kRunning)
    return {Code::kAlreadyExists,
            name + ": " + job.describe(greeting.rank) + " is connected already"};
  return Status::ok();
}

Result<Job*> Jobs::create(uid_t uid, const submit::Greeting& greeting) {
  RUEDA_RETURN_IF_ERROR(quota_.takeJob(uid, shm::kBoardsBytes));
  auto boards = membership::BoardKeeper::create(greeting.size);
  if (!boards.isOk()) {
    quota_.giveJob(uid, shm::kBoardsBytes);
    return boards.status();
  }
  const flow::JobSerial serial = nextSerial_++;
  auto job = std::make_unique<Job>(serial, uid, greeting.job, greeting.size, greeting.isolated,
                                   std::move(boards).value());
  Job* created = job.get();
  jobs_[serial] = std::move(job);
  latest_[{uid, greeting.job}] = serial;
  return created;
}

Result<Job*> Jobs::join(const submit::Session& session, const submit::Greeting& greeting) {
  const uid_t uid = session.peer().uid;
  const auto known = latest_.find({uid, greeting.job});
  Job* job = known == latest_.end() ? nullptr : find(known->second);
  const bool isOver =
      job == nullptr || job->state == Job::State::kFailed || job->state == Job::State::kEnded;
  if (isOver) {
    RUEDA_ASSIGN_OR_RETURN(job, create(uid, greeting));
  } else {
    RUEDA_RETURN_IF_ERROR(checkPlace(*job, greeting));
  }
  Member& member = job->members[static_cast<size_t>(greeting.rank)];
  member.state = Member::State::kRunning;
  member.session = session.id();
  member.pid = session.peer().pid;
  member.host = greeting.hostname;
  return job;
}

void Jobs::noteRefusal(uid_t uid, const submit::Greeting& greeting, const Status& reason) {
  const auto known = latest_.find({uid, greeting.job});
  Job* const job = known == latest_.end() ? nullptr : find(known->second);
  if (job == nullptr || job->state != Job::State::kForming || greeting.rank >= job->size) return;
  Member& member = job->members[static_cast<size_t>(greeting.rank)];
  if (member.state != Member::State::kAbsent) return;
  member.lastTry = "rank " + std::to_string(greeting.rank) + " was refused: " + reason.message();
  job->formingNoticeAt = {};
}

Job* Jobs::find(flow::JobSerial serial) {
  const auto it = jobs_.find(serial);
  return it == jobs_.end() ? nullptr : it->second.get();
}

void Jobs::finish(Job* job, Job::State state, int rank, const Status& status,
                  std::vector<flow::Outcome>* outcomes) {
  if (job->state == Job::State::kFailed || job->state == Job::State::kEnded) return;
  job->state = state;
  job->failure = status;
  auto notice = shm::makeMessage<shm::Notice>(shm::MessageType::kJobFailed);
  notice.code = static_cast<int32_t>(status.code());
  notice.rank = rank;
  shm::copyText(notice.text, sizeof notice.text, status.message());
  // The text goes first: a waiter that sees a board's abort looks for it.
  for (const Member& member : job->members)
    if (member.state == Member::State::kRunning) notify_(member.session, notice);
  job->boards.abort();
  for (flow::Request& request : job->sets.takeAll()) {
    flow::Outcome outcome;
    outcome.session = request.session;
    outcome.requestId = request.requestId;
    outcome.status = status;
    outcomes->push_back(std::move(outcome));
    ++job->opsFailed;
  }
  // Gathers stay: they were complete, and a rank may still copy the rows.
  job->directWaits.clear();
}

void Jobs::leave(Job* job, int rank, Member::State how, const std::string& cause) {
  Member& member = job->members[static_cast<size_t>(rank)];
  member.state = how;
  if (job->state == Job::State::kForming) {  // The place stays open for another try.
    member.state = Member::State::kAbsent;
    member.lastTry = job->describe(rank) + " " + cause;
    job->formingNoticeAt = {};
  }
  job->requestWaits[static_cast<size_t>(rank)].clear();
}

void Jobs::removeIfEmpty(flow::JobSerial serial) {
  Job* job = find(serial);
  if (job == nullptr || job->hasSessions() || job->running > 0 || !job->runnable.empty()) return;
  for (const auto& [id, segment] : job->segments) quota_.giveBytes(job->uid, segment->bytes);
  quota_.giveJob(job->uid, shm::kBoardsBytes);
  const auto known = latest_.find({job->uid, job->id});
  if (known != latest_.end() && known->second == serial) latest_.erase(known);
  jobs_.erase(serial);
}

Result<std::shared_ptr<flow::Segment>> Jobs::addSegment(Job* job, int rank, uint64_t bytes) {
  if (bytes == 0 || bytes % 4096 != 0)
    return Status(Code::kProtocolError,
                  "segment of " + std::to_string(bytes) + " bytes is not whole pages");
  if (job->segments.size() >= shm::kMaxSegments)
    return Status(Code::kResourceExhausted,
                  "the job has its limit of " + std::to_string(shm::kMaxSegments) + " segments");
  const uint64_t available = submit::availableBytes();
  if (bytes > available)
    return Status(Code::kResourceExhausted, "a segment of " + std::to_string(bytes) +
                                                " bytes is needed, the machine has " +
                                                std::to_string(available) + " available");
  RUEDA_RETURN_IF_ERROR(quota_.takeBytes(job->uid, bytes));
  const auto segment = disposer_.guard(std::make_unique<flow::Segment>());
  auto memfd = shm::createSealedMemfd("rueda-tensors", bytes);
  auto mapping = memfd.isOk() ? shm::Mapping::map(memfd.value().get(), bytes)
                              : Result<shm::Mapping>(memfd.status());
  if (!mapping.isOk()) {
    quota_.giveBytes(job->uid, bytes);
    return mapping.status();
  }
  segment->id = job->nextSegment++;
  segment->rank = rank;
  segment->bytes = bytes;
  segment->memfd = std::move(memfd).value();
  segment->mapping = std::move(mapping).value();
  job->segments[segment->id] = segment;
  job->members[static_cast<size_t>(rank)].arenaBytes += bytes;
  return segment;
}

int Jobs::totalRanks() const {
  int ranks = 0;
  for (const auto& [serial, job] : jobs_)
    if (job->state == Job::State::kForming || job->state == Job::State::kRunning)
      ranks += job->size;
  return ranks;
}

}  // namespace rueda::engine
