// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a rank is told of an operation that it times: when the ranks came, and when it ran. Pure.

#include "daemon/flow/decision.h"
#include "daemon/flow/outcome.h"

namespace rueda::engine {

// A fused operation's way over the data plane.
struct Span {
  flow::TimePoint cycle;  // The cycle that dispatched it began.
  flow::TimePoint started;
  flow::TimePoint ended;
};

// Adds the times of `decision`. `span`: nullptr if nothing ran on the data plane; then, if `isOk`,
// it started and ended when it was decided.
void addTimes(const flow::Decision& decision, bool isOk, const Span* span, flow::Outcome* outcome);

}  // namespace rueda::engine
