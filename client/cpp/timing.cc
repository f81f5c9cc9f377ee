// SPDX-License-Identifier: Apache-2.0
// The fourth part of Client: what its timeline gets to know.
#include <cstring>
#include <utility>

#include "client/cpp/client.h"

namespace rueda::client {

using shm::Code;
using shm::Status;

namespace {

int64_t nowNs() { return shm::nanosOf(std::chrono::steady_clock::now()); }

Status checkTimeline(const Options& options) {
  if (!options.timeline.empty()) return Status::ok();
  return {
      Code::kInvalidArgument,
      "the timeline is not enabled: HOROVOD_TIMELINE or RUEDA_TIMELINE must be a path or DYNAMIC "
      "when the session opens"};
}

}  // namespace

Client::~Client() {
  if (connection_->isForked()) timeline_.leaveToParent();
  for (auto& [id, flight] : flights_) recordTimed(&flight);
}

Status Client::startTimeline(const std::string& path, bool marksCycles) {
  RUEDA_RETURN_IF_ERROR(checkTimeline(options_));
  return options_.rank == 0 ? timeline_.start(path, marksCycles) : Status::ok();
}

Status Client::stopTimeline() {
  RUEDA_RETURN_IF_ERROR(checkTimeline(options_));
  if (options_.rank == 0) timeline_.stop();
  return Status::ok();
}

// Every rank says when it comes, since rank 0 may be timing it.
void Client::stamp(const Operation& op, Flight* flight, Submission* submission) const {
  submission->submittedNs = nowNs();
  if (!timeline_.isRunning()) return;
  submission->flags |= shm::kFlagTimed;
  flight->timed = std::make_unique<TimedOperation>();
  TimedOperation& timed = *flight->timed;
  timed.name = flight->name;
  timed.processSet = op.processSet;
  timed.kind = op.kind;
  timed.isAdasum = op.kind == shm::OpKind::kAllreduce && op.reduceOp == shm::ReduceOp::kAdasum;
  timed.isBlocking = (submission->flags & shm::kFlagBlocking) != 0;
  timed.dtype = op.dtype;
  if (op.ndim > 0) timed.shape.assign(op.shape, op.shape + op.ndim);
  timed.rank = options_.rank;
  timed.submitted = submission->submittedNs;
}

// From the block that stands in for it to the caller's memory.
void Client::copyOut(Flight* flight) {
  TimedOperation* const timed = flight->timed.get();
  if (timed != nullptr) timed->copyBegin = nowNs();
  std::memcpy(flight->copyTo, flight->result, flight->resultBytes);
  if (timed != nullptr) timed->copyEnd = nowNs();
}

// The rows of gather `id` are there, or will not come.
void Client::noteCollected(uint64_t id, int64_t begin, const Status& collected) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = flights_.find(id);
  if (it == flights_.end() || it->second.timed == nullptr) return;
  it->second.timed->copyBegin = begin;
  it->second.timed->copyEnd = nowNs();
  if (!collected.isOk()) it->second.status = collected;
  recordTimed(&it->second);
}

// Hands over what is known of an operation at its end. REQUIRES: mutex_ held.
void Client::recordTimed(Flight* flight) {
  const std::unique_ptr<TimedOperation> timed = std::move(flight->timed);
  if (timed == nullptr) return;
  timed->ended = nowNs();
  timed->error = flight->status.message();
  if (!flight->done)
    timed->error = connection_->hasFailed() ? connection_->failure().message()
                                            : "the session was closed before it ended";
  timeline_.record(std::move(*timed));
}

}  // namespace rueda::client
