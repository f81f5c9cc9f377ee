// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/direct_spread.h"

#include <algorithm>
#include <cstring>

#include "shm/copy.h"

namespace rueda::client {

namespace {

constexpr uint64_t kSpreadBytes = 128 << 10;  // What a rank claims at a time.
constexpr uint64_t kSpreadBlock = 64 << 10;   // Of staging memory: the first is soon there.
constexpr uint32_t kSpreadBlocks = 2 * kStagingBlock / kSpreadBlock;

}  // namespace

End DirectSpread::run(const Operation& op, uint32_t index, const Tensors& tensors) {
  return tensors.hasStaged ? spreadStaged(op, index, tensors) : spread(op, index, tensors);
}

// Whoever is free reads a chunk once and writes it to all whose memory it can reach, the root, too:
// it has nothing else to do. Who cannot be reached copies all for itself.
End DirectSpread::spread(const Operation& op, uint32_t index, const Tensors& tensors) {
  const char* const source = tensors.input[op.root];
  char* outputs[shm::kMaxRanks];
  int count = 0;
  for (int rank = 0; rank < seat_.size(); ++rank)
    if (tensors.output[rank] != nullptr) outputs[count++] = tensors.output[rank];
  const auto chunks =
      count == 0 ? 0 : static_cast<uint32_t>((op.bytes() + kSpreadBytes - 1) / kSpreadBytes);
  const uint32_t total = chunks + static_cast<uint32_t>(seat_.size() - 1 - count);
  if (op.root != seat_.rank() && tensors.output[seat_.rank()] == nullptr) {
    shm::copyLarge(op.output, source, op.bytes());
    seat_.addFinished(index, 1, total);
    return End::kDone;
  }
  uint32_t done = 0;
  uint32_t chunk = 0;
  while (seat_.claimChunk(index, 0, chunks, &chunk)) {
    const uint64_t begin = chunk * kSpreadBytes;
    const uint64_t bytes = std::min(kSpreadBytes, op.bytes() - begin);
    for (int i = 0; i < count; ++i) shm::copyLarge(outputs[i] + begin, source + begin, bytes);
    ++done;
  }
  seat_.addFinished(index, done, total);
  if (op.root == seat_.rank() && op.output != op.input)
    std::memcpy(op.output, op.input, op.bytes());
  const End end = seat_.awaitFinished(op, index, total);
  return end == End::kFailed && seat_.awaitCopies(index, total) ? End::kDone : end;
}

// Of memory that only the root can read. It leaves when the last block is in staging memory: it
// writes there again only after it has seen the next posts of all, and by then they have left.
End DirectSpread::spreadStaged(const Operation& op, uint32_t index, const Tensors& tensors) {
  const auto blocks = static_cast<uint32_t>((op.bytes() + kSpreadBlock - 1) / kSpreadBlock);
  const bool isRoot = op.root == seat_.rank();
  if (isRoot && op.output != op.input) std::memcpy(op.output, op.input, op.bytes());
  for (uint32_t b = 0; b < blocks; ++b) {
    const uint64_t begin = b * kSpreadBlock;
    const uint64_t bytes = std::min(kSpreadBlock, op.bytes() - begin);
    const uint64_t place = b % kSpreadBlocks * kSpreadBlock;
    End end = End::kDone;
    if (isRoot && b >= kSpreadBlocks)
      end = awaitReceivers(op, index, b + 1 - kSpreadBlocks);
    else if (!isRoot)
      end = seat_.awaitPhases(op, index, false, b + 1, op.root, op.root + 1);
    if (end != End::kDone) return end;
    if (isRoot)
      std::memcpy(tensors.output[seat_.rank()] + place, static_cast<const char*>(op.input) + begin,
                  bytes);
    else
      shm::copyLarge(static_cast<char*>(op.output) + begin, tensors.input[op.root] + place, bytes);
    seat_.publishPhase(index, !isRoot, b + 1);
  }
  return End::kDone;
}

// Until all but the root have taken so many blocks.
End DirectSpread::awaitReceivers(const Operation& op, uint32_t index, uint32_t blocks) {
  const End before = seat_.awaitPhases(op, index, true, blocks, 0, op.root);
  return before != End::kDone
             ? before
             : seat_.awaitPhases(op, index, true, blocks, op.root + 1, seat_.size());
}

}  // namespace rueda::client
