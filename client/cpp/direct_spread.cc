// SPDX-License-Identifier: Apache-2.0
// A broadcast on the board: one tensor, written to all the others.
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "client/cpp/direct.h"
#include "shm/copy.h"

namespace rueda::client {

using shm::tagged;

namespace {

constexpr uint64_t kSpreadBytes = 128 << 10;  // What a rank claims at a time.
constexpr uint64_t kSpreadBlock = 64 << 10;   // Of staging memory: the first is soon there.
constexpr uint32_t kSpreadBlocks = 2 * DirectPath::kStagingBlock / kSpreadBlock;
constexpr std::chrono::seconds kLastCopiesLimit{10};

}  // namespace

// Whoever is free reads a chunk once and writes it to all whose memory it can reach, the root, too:
// it has nothing else to do. Who cannot be reached copies all for itself.
DirectPath::End DirectPath::spread(const Operation& op, uint32_t index, const Tensors& tensors) {
  const char* const source = tensors.input[op.root];
  char* outputs[shm::kMaxRanks];
  int count = 0;
  for (int rank = 0; rank < size_; ++rank)
    if (tensors.output[rank] != nullptr) outputs[count++] = tensors.output[rank];
  const auto chunks =
      count == 0 ? 0 : static_cast<uint32_t>((op.bytes() + kSpreadBytes - 1) / kSpreadBytes);
  const uint32_t total = chunks + static_cast<uint32_t>(size_ - 1 - count);
  if (op.root != rank_ && tensors.output[rank_] == nullptr) {
    shm::copyLarge(op.output, source, op.bytes());
    addFinished(index, 1, total);
    return End::kDone;
  }
  uint32_t done = 0;
  uint32_t chunk = 0;
  while (claimChunk(&board_->claims[index & 1][0], index, chunks, &chunk)) {
    const uint64_t begin = chunk * kSpreadBytes;
    const uint64_t bytes = std::min(kSpreadBytes, op.bytes() - begin);
    for (int i = 0; i < count; ++i) shm::copyLarge(outputs[i] + begin, source + begin, bytes);
    ++done;
  }
  addFinished(index, done, total);
  if (op.root == rank_ && op.output != op.input) std::memcpy(op.output, op.input, op.bytes());
  const End end = awaitFinished(op, index, total);
  return end == End::kFailed && awaitCopies(index, total) ? End::kDone : end;
}

// After the job has ended: a peer that had its copy may have left, and ended it so, while the
// others are still copying. They need nobody for that.
bool DirectPath::awaitCopies(uint32_t index, uint32_t total) const {
  if (connection_.failure().code() != shm::Code::kShutDown) return false;
  const std::atomic<uint64_t>& finished = board_->finished[index & 1][0];
  const auto deadline = std::chrono::steady_clock::now() + kLastCopiesLimit;
  while (finished.load(std::memory_order_acquire) != tagged(index, total)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::sched_yield();
  }
  return true;
}

// Of memory that only the root can read. It leaves when the last block is in staging memory: it
// writes there again only after it has seen the next posts of all, and by then they have left.
DirectPath::End DirectPath::spreadStaged(const Operation& op, uint32_t index,
                                         const Tensors& tensors) {
  const auto blocks = static_cast<uint32_t>((op.bytes() + kSpreadBlock - 1) / kSpreadBlock);
  const bool isRoot = op.root == rank_;
  if (isRoot && op.output != op.input) std::memcpy(op.output, op.input, op.bytes());
  for (uint32_t b = 0; b < blocks; ++b) {
    const uint64_t begin = b * kSpreadBlock;
    const uint64_t bytes = std::min(kSpreadBlock, op.bytes() - begin);
    const uint64_t place = b % kSpreadBlocks * kSpreadBlock;
    End end = End::kDone;
    if (isRoot && b >= kSpreadBlocks)
      end = awaitReceivers(op, index, b + 1 - kSpreadBlocks);
    else if (!isRoot)
      end = awaitPhases(op, index, false, b + 1, op.root, op.root + 1);
    if (end != End::kDone) return end;
    if (isRoot)
      std::memcpy(tensors.output[rank_] + place, static_cast<const char*>(op.input) + begin, bytes);
    else
      shm::copyLarge(static_cast<char*>(op.output) + begin, tensors.input[op.root] + place, bytes);
    publishPhase(index, !isRoot, b + 1);
  }
  return End::kDone;
}

// Until all but the root have taken so many blocks.
DirectPath::End DirectPath::awaitReceivers(const Operation& op, uint32_t index, uint32_t blocks) {
  const End before = awaitPhases(op, index, true, blocks, 0, op.root);
  return before != End::kDone ? before : awaitPhases(op, index, true, blocks, op.root + 1, size_);
}

}  // namespace rueda::client
