// SPDX-License-Identifier: Apache-2.0
#pragma once

// One collective over one or many tensors of equal dtype, operation and scale. On one host fusion
// moves no bytes: a slice names where every rank's tensor lies, and neighbours become one slice.

#include <atomic>
#include <memory>
#include <vector>

#include "daemon/flow/decision.h"
#include "shm/reduce_kernels.h"

namespace rueda::flow {

// One range that is combined element by element. Pointers are borrowed from the decisions' memory.
struct Slice {
  std::vector<const void*> inputs;  // By rank, nullptr for zeros; a broadcast has the root's alone.
  std::vector<void*> outputs;
  uint64_t count = 0;  // Elements.
};

struct FusedOp {
  JobSerial job = 0;
  shm::OpKind kind = shm::OpKind::kAllreduce;
  shm::ReduceSpec reduce;
  std::vector<Slice> slices;
  uint64_t bytes = 0;               // Of one rank.
  std::vector<Decision> decisions;  // What it carries out; keeps the memory alive.
  TimePoint cycleAt;                // The cycle that dispatched it began.
  TimePoint startedAt;              // It went to the data plane.
  // If set: once it holds true nobody waits any more, and what is left need not be done.
  std::shared_ptr<const std::atomic<bool>> unwanted;
};

}  // namespace rueda::flow
