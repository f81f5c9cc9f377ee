// SPDX-License-Identifier: Apache-2.0
#pragma once

// Carries out fused operations somewhere. run() is called by the engine and must not block it.

#include <functional>
#include <memory>

#include "daemon/flow/fused_op.h"

namespace rueda::execute {

class DataPlane {
 public:
  virtual ~DataPlane() = default;
  // Starts `op`; `done` is called once, from any thread (before run returns, for small ones).
  virtual void run(std::shared_ptr<const flow::FusedOp> op, std::function<void()> done) = 0;
};

}  // namespace rueda::execute
