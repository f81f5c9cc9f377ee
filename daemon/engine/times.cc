// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/times.h"

#include <algorithm>

namespace rueda::engine {
namespace {

using shm::nanosOf;

// What the rank says, unless that is later than the engine saw it.
int64_t submittedAt(const flow::Request& request) {
  const int64_t seen = nanosOf(request.arrived);
  return request.submittedNs > 0 ? std::min(request.submittedNs, seen) : seen;
}

// When the last request of one of a group came, which then waited for the rest of the group. Else
// it was decided at once; what all ranks had submitted but some that joined later, at the join.
int64_t completeAt(const flow::Decision& decision) {
  flow::TimePoint last = decision.decidedAt;
  if (decision.group != 0 && decision.joined.empty()) {
    last = decision.requests.front().arrived;
    for (const flow::Request& request : decision.requests) last = std::max(last, request.arrived);
  }
  return nanosOf(std::min(last, decision.decidedAt));
}

}  // namespace

void addTimes(const flow::Decision& decision, bool isOk, const Span* span, flow::Outcome* outcome) {
  for (const flow::Request& request : decision.requests)
    outcome->rankTimes.push_back({request.rank, 0, submittedAt(request)});
  shm::OpTimes& times = outcome->times;
  times.complete = completeAt(decision);
  times.cycle = times.decided = nanosOf(decision.decidedAt);
  if (isOk) times.started = times.ended = times.decided;
  if (span == nullptr) return;
  times.cycle = nanosOf(span->cycle);
  times.started = nanosOf(span->started);
  times.ended = nanosOf(span->ended);
}

}  // namespace rueda::engine
