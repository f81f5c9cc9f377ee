// SPDX-License-Identifier: Apache-2.0
#pragma once

// Collectives among ranks of this host, directly over their segments: one pass that reads every
// rank's input and writes every rank's output. Small operations run in the caller, which saves two
// wake-ups (20 to 50 us); larger ones are cut into pieces for the workers.

#include "daemon/execute/cpu/adasum.h"
#include "daemon/execute/cpu/worker_pool.h"
#include "daemon/execute/data_plane.h"

namespace rueda::execute {

// A part of one slice.
struct Piece {
  uint32_t slice = 0;
  uint64_t begin = 0;  // Elements.
  uint64_t count = 0;
};

// Cuts an operation into runs of pieces of about equal traffic: 256 KiB of one rank, or 64 KiB when
// that gives fewer than 8 runs (measured: the best at 16 MiB and up, and at 1 MiB). Pure.
std::vector<std::vector<Piece>> cutIntoRuns(const flow::FusedOp& op);

class ShmPlane : public DataPlane {
 public:
  // `pool` outlives the plane.
  explicit ShmPlane(WorkerPool& pool) : pool_(pool) {}
  void run(std::shared_ptr<const flow::FusedOp> op, std::function<void()> done) override;

 private:
  // Dot products of whole tensors first, then what depends on them.
  void runAdasum(std::shared_ptr<const flow::FusedOp> op, std::function<void()> done);
  void startPhase(flow::JobSerial job, std::shared_ptr<Adasum> adasum, size_t phase,
                  std::function<void()> done);

  WorkerPool& pool_;
};

}  // namespace rueda::execute
