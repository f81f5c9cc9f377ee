// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/flight_timer.h"

#include <chrono>
#include <cstring>
#include <utility>

namespace rueda::client {
namespace {

int64_t nowNs() { return shm::nanosOf(std::chrono::steady_clock::now()); }

}  // namespace

void FlightTimer::stamp(const Operation& op, Flight* flight, Submission* submission) const {
  if (!isOn_) return;
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
  timed.rank = rank_;
  timed.submitted = submission->submittedNs;
}

void FlightTimer::copyOut(Flight* flight) {
  TimedOperation* const timed = flight->timed.get();
  if (timed != nullptr) timed->copyBegin = nowNs();
  std::memcpy(flight->copyTo, flight->result, flight->resultBytes);
  if (timed != nullptr) timed->copyEnd = nowNs();
}

void FlightTimer::noteCollected(Flight* flight, int64_t begin, const shm::Status& collected) {
  if (flight->timed == nullptr) return;
  flight->timed->copyBegin = begin;
  flight->timed->copyEnd = nowNs();
  if (!collected.isOk()) flight->status = collected;
  record(flight);
}

void FlightTimer::record(Flight* flight) {
  const std::unique_ptr<TimedOperation> timed = std::move(flight->timed);
  if (timed == nullptr) return;
  timed->ended = nowNs();
  timed->error = flight->status.message();
  if (!flight->done)
    timed->error = connection_.hasFailed() ? connection_.failure().message()
                                           : "the session was closed before it ended";
  timeline_.record(std::move(*timed));
}

}  // namespace rueda::client
