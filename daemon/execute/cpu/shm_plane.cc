// SPDX-License-Identifier: Apache-2.0
#include "daemon/execute/cpu/shm_plane.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "shm/layout.h"

namespace rueda::execute {
namespace {

using flow::FusedOp;
using flow::Slice;

// Bytes of all ranks that the caller sums itself: 30 us of float32, a multiple of types that are
// converted. To wake workers and hear of their end takes longer: 1 MiB of two ranks 80 us, so 28.
constexpr uint64_t kInlineTraffic = 2 << 20;
constexpr uint64_t kInlineAdasum = 32 << 10;  // Of one rank: several passes that convert.
constexpr uint64_t kLargePiece = 256 << 10;
constexpr uint64_t kSmallPiece = 64 << 10;
constexpr uint64_t kFewRuns = 8;

void runPiece(const FusedOp& op, const Piece& piece) {
  const Slice& slice = op.slices[piece.slice];
  const size_t elementBytes = shm::dtypeSize(op.reduce.dtype);
  const uint64_t offset = piece.begin * elementBytes;
  const uint64_t bytes = piece.count * elementBytes;
  if (op.kind == shm::OpKind::kBroadcast) {
    const char* source = static_cast<const char*>(slice.inputs.front()) + offset;
    for (void* output : slice.outputs)
      if (char* to = static_cast<char*>(output) + offset; to != source)
        std::memmove(to, source, bytes);  // A fetch may overlap what it reads.
    return;
  }
  static const char kZeros[kLargePiece] = {};  // No piece is longer.
  const void* inputs[shm::kMaxRanks];
  void* outputs[shm::kMaxRanks];
  for (size_t r = 0; r < slice.inputs.size(); ++r)
    inputs[r] =
        slice.inputs[r] == nullptr ? kZeros : static_cast<const char*>(slice.inputs[r]) + offset;
  for (size_t r = 0; r < slice.outputs.size(); ++r)
    outputs[r] = static_cast<char*>(slice.outputs[r]) + offset;
  shm::reduce(op.reduce, inputs, static_cast<int>(slice.inputs.size()), outputs,
              static_cast<int>(slice.outputs.size()), piece.count);
}

}  // namespace

std::vector<std::vector<Piece>> cutIntoRuns(const FusedOp& op) {
  const uint64_t limit = op.bytes < kFewRuns * kLargePiece ? kSmallPiece : kLargePiece;
  const uint64_t perRun = limit / shm::dtypeSize(op.reduce.dtype);
  std::vector<std::vector<Piece>> runs;
  uint64_t room = 0;
  for (uint32_t s = 0; s < op.slices.size(); ++s) {
    for (uint64_t at = 0; at < op.slices[s].count;) {
      if (room == 0) {
        runs.emplace_back();
        room = perRun;
      }
      const uint64_t count = std::min(room, op.slices[s].count - at);
      runs.back().push_back({s, at, count});
      at += count;
      room -= count;
    }
  }
  return runs;
}

void ShmPlane::runAdasum(std::shared_ptr<const FusedOp> op, std::function<void()> done) {
  const auto adasum = std::make_shared<Adasum>(op);
  if (op->bytes <= kInlineAdasum) {
    for (size_t phase = 0; phase < adasum->phases(); ++phase)
      for (size_t piece = 0; piece < adasum->pieces(); ++piece) adasum->runPiece(phase, piece);
    return done();
  }
  startPhase(op->job, adasum, 0, std::move(done));
}

void ShmPlane::startPhase(flow::JobSerial job, std::shared_ptr<Adasum> adasum, size_t phase,
                          std::function<void()> done) {
  WorkerPool::Work work;
  work.job = job;
  work.pieces = adasum->pieces();
  work.runPiece = [adasum, phase](size_t piece) { adasum->runPiece(phase, piece); };
  work.done = [this, job, adasum, phase, done = std::move(done)] {
    if (phase + 1 == adasum->phases()) return done();
    startPhase(job, adasum, phase + 1, done);
  };
  pool_.submit(std::move(work));
}

void ShmPlane::run(std::shared_ptr<const FusedOp> op, std::function<void()> done) {
  if (op->reduce.op == shm::ReduceOp::kAdasum) return runAdasum(std::move(op), std::move(done));
  auto runs = cutIntoRuns(*op);
  const uint64_t ranks = op->slices.empty() ? 0
                                            : std::max(op->slices.front().inputs.size(),
                                                       op->slices.front().outputs.size());
  if (op->bytes * ranks <= kInlineTraffic) {
    for (const auto& pieces : runs)
      for (const Piece& piece : pieces) runPiece(*op, piece);
    done();
    return;
  }
  WorkerPool::Work work;
  work.job = op->job;
  work.pieces = runs.size();
  work.done = std::move(done);
  work.runPiece = [op = std::move(op), runs = std::move(runs)](size_t index) {
    if (op->unwanted && op->unwanted->load(std::memory_order_relaxed)) return;
    for (const Piece& piece : runs[index]) runPiece(*op, piece);
  };
  pool_.submit(std::move(work));
}

}  // namespace rueda::execute
