// SPDX-License-Identifier: Apache-2.0
// What ranks agree on without a tensor, beside the barrier: joins and process sets.
#include <algorithm>
#include <utility>

#include "client/cpp/client.h"

namespace rueda::client {

using shm::Code;
using shm::OpKind;
using shm::Result;
using shm::Status;

Result<uint32_t> Client::addProcessSet(std::vector<int64_t> ranks) {
  std::sort(ranks.begin(), ranks.end());
  if (ranks.empty() || ranks.size() > shm::kMaxRanks)
    return Status(Code::kInvalidArgument,
                  "a process set of " + std::to_string(ranks.size()) + " ranks");
  Submission submission;
  submission.op.kind = OpKind::kAddSet;
  submission.op.name = ".add process set";
  submission.numbers = ranks;
  RUEDA_ASSIGN_OR_RETURN(const int64_t id, agree(std::move(submission)));
  const auto set = static_cast<uint32_t>(id);
  sets_.add(set, std::move(ranks));
  if (const auto place = sets_.placeIn(set); place.isOk()) directs_.add(set, place.value());
  return set;
}

Status Client::removeProcessSet(uint32_t set) {
  Submission submission;
  submission.op.kind = OpKind::kRemoveSet;
  submission.op.name = ".remove process set";
  submission.numbers = {set};
  const uint64_t serial = sets_.serialOf(set);
  // A number whose board this rank is on is not given out again before it has left.
  const bool isMember = sets_.placeIn(set).isOk();
  RUEDA_RETURN_IF_ERROR(agree(std::move(submission)).status());
  sets_.remove(set, serial);
  if (isMember) directs_.remove(set);
  return Status::ok();
}

Result<int> Client::join(uint32_t set, bool leftOut) {
  Submission submission;
  submission.op.kind = OpKind::kJoin;
  submission.op.name = ".join";
  submission.op.processSet = set;
  if (leftOut) submission.flags |= shm::kFlagLeftOut;
  RUEDA_ASSIGN_OR_RETURN(const int64_t last, agree(std::move(submission)));
  return static_cast<int>(last);
}

// Submits, waits, and returns what came out.
Result<int64_t> Client::agree(Submission submission) {
  RUEDA_RETURN_IF_ERROR(sets_.placeIn(submission.op.processSet).status());
  if (connection_->hasFailed()) return connection_->failure();
  submission.flags |= shm::kFlagBlocking;
  int64_t value = 0;
  const Operation op = submission.op;
  RUEDA_RETURN_IF_ERROR(op.kind == OpKind::kJoin ? ring_.join(&submission, &value)
                                                 : ring_.run(op, &submission, nullptr, &value));
  return value;
}

}  // namespace rueda::client
