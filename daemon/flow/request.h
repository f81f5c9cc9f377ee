// SPDX-License-Identifier: Apache-2.0
#pragma once

// A validated wish of one rank: private copies of numbers that were checked at the border, and
// memory that is known to lie inside the rank's own segments. Values; made and used on the engine.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/flow/segment.h"
#include "shm/dtype.h"
#include "shm/rows.h"
#include "shm/status.h"

namespace rueda::flow {

using SessionId = uint64_t;  // Never reused while the daemon lives.
using JobSerial = uint64_t;  // One generation of one job; never reused.
using SetId = uint32_t;      // Process set of a job; 0 holds all its ranks.
using TimePoint = std::chrono::steady_clock::time_point;

struct TensorSpec {
  shm::OpKind kind = shm::OpKind::kAllreduce;
  shm::DType dtype = shm::DType::kFloat32;
  shm::ReduceOp op = shm::ReduceOp::kSum;
  std::vector<int64_t> shape;
  uint64_t count = 0;           // Product of shape.
  std::vector<int64_t> splits;  // Alltoall: rows for each place, at most shape[0] in all.
  std::vector<int64_t> ranks;   // Of a process set to add.
  SetId dissolved = 0;          // Process set to remove.
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;

  uint64_t bytes() const { return count * shm::dtypeSize(dtype); }
  // REQUIRES: !shape.empty().
  uint64_t rowElements() const;
  // The rows of this rank's input that are for the rank at place `receiver` of `size`.
  shm::RowRange rowsFor(int receiver, int size) const;
};

// A tensor's memory: kept alive by `segment`, nullptr for tensors without bytes.
struct TensorMemory {
  std::shared_ptr<const Segment> segment;
  uint64_t offset = 0;

  char* data() const { return segment ? segment->mapping.data() + offset : nullptr; }
};

struct Request {
  SessionId session = 0;
  int rank = 0;   // In the job.
  SetId set = 0;  // Process set.
  int place = 0;  // Of the rank among the set's, which are ascending.
  uint64_t requestId = 0;
  std::string name;
  TensorSpec spec;
  TensorMemory input;
  TensorMemory output;
  shm::Status refusal;      // Not ok: the rank cannot take part, and its text says why.
  bool fallback = false;    // Was tried on the direct path at `directIndex` first.
  bool blocking = false;    // The submitting thread waits for it.
  bool threads = false;     // The rank uses several.
  bool among = false;       // The rank has started others that it has not waited for.
  bool leftOut = false;     // Join: others go on as though this rank were not there.
  bool timed = false;       // The rank wants to know what happened when.
  int64_t submittedNs = 0;  // When the rank submitted it, as it says; 0: it does not.
  uint32_t directIndex = 0;
  uint64_t group = 0;  // Nonzero: of a group, whose `groupSize` operations run together.
  uint32_t groupSize = 1;
  int32_t priority = 0;  // Higher ones run first.
  TimePoint arrived;
};

// "[3, 4]"; "[]" for a scalar.
std::string shapeText(const std::vector<int64_t>& shape);

}  // namespace rueda::flow
