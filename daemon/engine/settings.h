// SPDX-License-Identifier: Apache-2.0
#pragma once

// How one job wants to be served: what its rank 0 asked for in its hello, and for the rest what the
// operator has set for all. Values; engine thread.

#include <chrono>
#include <string>

#include "daemon/fuse/planner.h"
#include "shm/handshake.h"

namespace rueda::engine {

struct JobSettings {
  fuse::Policy fusion;
  // What becomes complete within that long after a dispatch waits for the end of it, and is fused.
  // 0: it waits only while the data plane is busy.
  std::chrono::microseconds cycle{0};
  std::chrono::milliseconds stallWarn{1000};   // 0: never.
  std::chrono::milliseconds stallShutdown{0};  // 0: never.
};

// `operators` with what the knobs change. *note: what is ignored and why, or "".
JobSettings withKnobs(const JobSettings& operators, const shm::Knobs& knobs, std::string* note);

}  // namespace rueda::engine
