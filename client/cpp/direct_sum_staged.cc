// SPDX-License-Identifier: Apache-2.0
// Sums of memory that other ranks cannot reach. Copying a whole tensor into shared memory and back
// gives away the advantage over message passing; instead it goes through two blocks that stay in
// cache: while block b is summed, block b + 1 is copied in.
#include <algorithm>
#include <cstring>

#include "client/cpp/direct_sum.h"

namespace rueda::client {

namespace {

struct Block {
  uint64_t begin = 0;  // Bytes into the tensor.
  uint64_t bytes = 0;
  uint64_t staging = 0;  // Bytes into a rank's staging memory.
};

Block blockAt(const Operation& op, uint32_t number) {
  const uint64_t begin = number * kStagingBlock;
  return {begin, std::min(kStagingBlock, op.bytes() - begin), (number & 1) * kStagingBlock};
}

}  // namespace

// Block by block: copyIn(b) brings this rank's part to where the others find it, combine(b) reads
// what all have brought, copyOut(b) takes away what all have combined.
template <typename CopyIn, typename Combine, typename CopyOut>
End DirectSum::forStagedBlocks(const Operation& op, uint32_t index, uint32_t blocks,
                               const CopyIn& copyIn, const Combine& combine,
                               const CopyOut& copyOut) {
  const auto bring = [&](uint32_t number) {
    copyIn(number);
    seat_.publishPhase(index, false, number + 1);
  };
  bring(0);
  for (uint32_t b = 0; b < blocks; ++b) {
    if (b + 1 < blocks) bring(b + 1);  // Its buffer is free: all have combined block b - 1.
    if (const End end = seat_.awaitPhases(op, index, false, b + 1, 0, seat_.size());
        end != End::kDone)
      return end;
    combine(b);
    seat_.publishPhase(index, true, b + 1);
    if (const End end = seat_.awaitPhases(op, index, true, b + 1, 0, seat_.size());
        end != End::kDone)
      return end;
    copyOut(b);
  }
  return End::kDone;
}

End DirectSum::sumStaged(const Operation& op, uint32_t index, const Tensors& tensors) {
  const auto blocks = static_cast<uint32_t>((op.bytes() + kStagingBlock - 1) / kStagingBlock);
  const uint64_t elementBytes = shm::dtypeSize(op.dtype);
  const bool isForeign = tensors.staged[seat_.rank()];
  const auto copyIn = [&](uint32_t number) {
    const Block block = blockAt(op, number);
    if (isForeign)
      std::memcpy(tensors.output[seat_.rank()] + block.staging,
                  static_cast<const char*>(op.input) + block.begin, block.bytes);
  };
  // Combines this rank's fixed part of the block for all.
  const auto combine = [&](uint32_t number) {
    const Block block = blockAt(op, number);
    const uint64_t line = 64 / elementBytes;
    const uint64_t count = block.bytes / elementBytes;
    const uint64_t share = ((count + seat_.size() - 1) / seat_.size() + line - 1) / line * line;
    const uint64_t begin = std::min(count, seat_.rank() * share);
    const uint64_t end = std::min(count, begin + share);
    const void* inputs[shm::kMaxRanks];
    void* outputs[shm::kMaxRanks];
    for (int rank = 0; rank < seat_.size(); ++rank) {
      const uint64_t at =
          (tensors.staged[rank] ? block.staging : block.begin) + begin * elementBytes;
      inputs[rank] = tensors.input[rank] + at;
      outputs[rank] = tensors.output[rank] + at;
    }
    shm::reduce(op.reduceSpec(seat_.size()), inputs, seat_.size(), outputs, seat_.size(),
                end - begin);
  };
  const auto copyOut = [&](uint32_t number) {
    const Block block = blockAt(op, number);
    if (isForeign)
      std::memcpy(static_cast<char*>(op.output) + block.begin,
                  tensors.output[seat_.rank()] + block.staging, block.bytes);
  };
  return forStagedBlocks(op, index, blocks, copyIn, combine, copyOut);
}

// As scatter. A block holds a piece of the rows of each rank, so that all combine at once.
End DirectSum::scatterStaged(const Operation& op, uint32_t index, const Tensors& tensors) {
  const uint64_t piece = kStagingBlock / static_cast<uint64_t>(seat_.size()) / 64 * 64;
  const uint64_t longest =
      op.resultBytes(0, seat_.size());  // Rank 0 has no fewer rows than another.
  const auto blocks = static_cast<uint32_t>((longest + piece - 1) / piece);
  // Piece `number` of a rank's rows: where in its rows, and how long.
  const auto pieceOf = [&](int receiver, uint32_t number) {
    const uint64_t bytes = op.resultBytes(receiver, seat_.size());
    const uint64_t begin = std::min(bytes, number * piece);
    return Block{begin, std::min(piece, bytes - begin),
                 (number & 1) * kStagingBlock + static_cast<uint64_t>(receiver) * piece};
  };
  const auto copyIn = [&](uint32_t number) {
    if (!tensors.staged[seat_.rank()]) return;
    for (int receiver = 0; receiver < seat_.size(); ++receiver) {
      const Block block = pieceOf(receiver, number);
      const uint64_t from = op.resultBegin(receiver, seat_.size()) + block.begin;
      if (block.bytes > 0)
        std::memcpy(tensors.output[seat_.rank()] + block.staging,
                    static_cast<const char*>(op.input) + from, block.bytes);
    }
  };
  const auto combine = [&](uint32_t number) {
    const Block block = pieceOf(seat_.rank(), number);
    if (block.bytes == 0) return;
    const void* inputs[shm::kMaxRanks];
    for (int rank = 0; rank < seat_.size(); ++rank)
      inputs[rank] =
          tensors.input[rank] + (tensors.staged[rank]
                                     ? block.staging
                                     : op.resultBegin(seat_.rank(), seat_.size()) + block.begin);
    void* output = static_cast<char*>(op.output) + block.begin;
    shm::reduce(op.reduceSpec(seat_.size()), inputs, seat_.size(), &output, 1,
                block.bytes / shm::dtypeSize(op.dtype));
  };
  return forStagedBlocks(op, index, blocks, copyIn, combine, [](uint32_t) {});
}

}  // namespace rueda::client
