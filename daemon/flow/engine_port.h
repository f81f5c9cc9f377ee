// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the rest of the daemon may ask of the engine. Implemented by the engine; callable from any
// thread except the engine's own.

#include <chrono>

#include "daemon/flow/state_view.h"
#include "shm/status.h"

namespace rueda::flow {

class EnginePort {
 public:
  virtual ~EnginePort() = default;
  // A consistent copy of the state. kDeadlineExceeded if the engine does not answer in time.
  virtual shm::Result<StateView> snapshot(std::chrono::milliseconds timeout) = 0;
};

}  // namespace rueda::flow
