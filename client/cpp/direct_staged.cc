// SPDX-License-Identifier: Apache-2.0
// Direct operations on memory that other ranks cannot reach. Copying a whole tensor into shared
// memory and back gives away the advantage over message passing; instead it goes through two blocks
// that stay in cache: while block b is summed, block b + 1 is copied in.
#include <algorithm>
#include <cstring>

#include "client/cpp/direct.h"

namespace rueda::client {

using shm::indexAhead;
using shm::OpKind;
using shm::tagged;
using shm::tagIndex;
using shm::tagLow;

namespace {

// True when a phase word has reached `blocks` of operation `index`. A rank that is in a later
// operation has done all of this one.
bool reached(uint64_t word, uint32_t index, uint32_t blocks) {
  const int32_t ahead = indexAhead(tagIndex(word), index);
  return ahead > 0 || (ahead == 0 && tagLow(word) >= blocks);
}

struct Block {
  uint64_t begin = 0;  // Bytes into the tensor.
  uint64_t bytes = 0;
  uint64_t staging = 0;  // Bytes into a rank's staging memory.
};

Block blockAt(const Operation& op, uint32_t number) {
  const uint64_t begin = number * DirectPath::kStagingBlock;
  return {begin, std::min(DirectPath::kStagingBlock, op.bytes() - begin),
          (number & 1) * DirectPath::kStagingBlock};
}

}  // namespace

// Until the ranks from `first` to before `end` have come that far.
DirectPath::End DirectPath::awaitPhases(const Operation& op, uint32_t index, bool summed,
                                        uint32_t blocks, int first, int end) {
  int next = first;  // Ranks before it are there.
  const auto ready = [&] {
    for (; next < end; ++next) {
      const shm::PhaseLine& phase = board_->phases[next];
      if (!reached((summed ? phase.summed : phase.copiedIn).load(std::memory_order_acquire), index,
                   blocks))
        return false;
    }
    return true;
  };
  NotedWait wait(notes_, op, index);
  return toEnd(patience_.until(ready, board_->done, [&wait] { wait.lasts(); }));
}

// Says that this rank has come that far.
void DirectPath::publishPhase(uint32_t index, bool summed, uint32_t blocks) {
  shm::PhaseLine& mine = board_->phases[rank_];
  // seq_cst: publishes the block (or the place), and pairs with sleepers of the done bell.
  (summed ? mine.summed : mine.copiedIn).store(tagged(index, blocks), std::memory_order_seq_cst);
  shm::ring(board_->done);
}

// Block by block: copyIn(b) brings this rank's part to where the others find it, combine(b) reads
// what all have brought, copyOut(b) takes away what all have combined.
template <typename CopyIn, typename Combine, typename CopyOut>
DirectPath::End DirectPath::forStagedBlocks(const Operation& op, uint32_t index, uint32_t blocks,
                                            const CopyIn& copyIn, const Combine& combine,
                                            const CopyOut& copyOut) {
  const auto bring = [&](uint32_t number) {
    copyIn(number);
    publishPhase(index, false, number + 1);
  };
  bring(0);
  for (uint32_t b = 0; b < blocks; ++b) {
    if (b + 1 < blocks) bring(b + 1);  // Its buffer is free: all have combined block b - 1.
    if (const End end = awaitPhases(op, index, false, b + 1, 0, size_); end != End::kDone)
      return end;
    combine(b);
    publishPhase(index, true, b + 1);
    if (const End end = awaitPhases(op, index, true, b + 1, 0, size_); end != End::kDone)
      return end;
    copyOut(b);
  }
  return End::kDone;
}

DirectPath::End DirectPath::sumStaged(const Operation& op, uint32_t index, const Tensors& tensors) {
  const auto blocks = static_cast<uint32_t>((op.bytes() + kStagingBlock - 1) / kStagingBlock);
  const uint64_t elementBytes = shm::dtypeSize(op.dtype);
  const bool isForeign = tensors.staged[rank_];
  const auto copyIn = [&](uint32_t number) {
    const Block block = blockAt(op, number);
    if (isForeign)
      std::memcpy(tensors.output[rank_] + block.staging,
                  static_cast<const char*>(op.input) + block.begin, block.bytes);
  };
  // Combines this rank's fixed part of the block for all.
  const auto combine = [&](uint32_t number) {
    const Block block = blockAt(op, number);
    const uint64_t line = 64 / elementBytes;
    const uint64_t count = block.bytes / elementBytes;
    const uint64_t share = ((count + size_ - 1) / size_ + line - 1) / line * line;
    const uint64_t begin = std::min(count, rank_ * share);
    const uint64_t end = std::min(count, begin + share);
    const void* inputs[shm::kMaxRanks];
    void* outputs[shm::kMaxRanks];
    for (int rank = 0; rank < size_; ++rank) {
      const uint64_t at =
          (tensors.staged[rank] ? block.staging : block.begin) + begin * elementBytes;
      inputs[rank] = tensors.input[rank] + at;
      outputs[rank] = tensors.output[rank] + at;
    }
    shm::reduce(op.reduceSpec(size_), inputs, size_, outputs, size_, end - begin);
  };
  const auto copyOut = [&](uint32_t number) {
    const Block block = blockAt(op, number);
    if (isForeign)
      std::memcpy(static_cast<char*>(op.output) + block.begin,
                  tensors.output[rank_] + block.staging, block.bytes);
  };
  return forStagedBlocks(op, index, blocks, copyIn, combine, copyOut);
}

// Every rank combines the rows that are for it, straight into its own memory, and returns when
// nobody reads its input any more.
DirectPath::End DirectPath::scatter(const Operation& op, uint32_t index, const Tensors& tensors) {
  const void* inputs[shm::kMaxRanks];
  for (int rank = 0; rank < size_; ++rank)
    inputs[rank] = tensors.input[rank] + op.resultBegin(rank_, size_);
  void* output = op.output;
  shm::reduce(op.reduceSpec(size_), inputs, size_, &output, 1,
              op.resultBytes(rank_, size_) / shm::dtypeSize(op.dtype));
  addFinished(index, 1, static_cast<uint32_t>(size_));
  return awaitFinished(op, index, static_cast<uint32_t>(size_));
}

// As scatter. A block holds a piece of the rows of each rank, so that all combine at once.
DirectPath::End DirectPath::scatterStaged(const Operation& op, uint32_t index,
                                          const Tensors& tensors) {
  const uint64_t piece = kStagingBlock / static_cast<uint64_t>(size_) / 64 * 64;
  const uint64_t longest = op.resultBytes(0, size_);  // Rank 0 has no fewer rows than another.
  const auto blocks = static_cast<uint32_t>((longest + piece - 1) / piece);
  // Piece `number` of a rank's rows: where in its rows, and how long.
  const auto pieceOf = [&](int receiver, uint32_t number) {
    const uint64_t bytes = op.resultBytes(receiver, size_);
    const uint64_t begin = std::min(bytes, number * piece);
    return Block{begin, std::min(piece, bytes - begin),
                 (number & 1) * kStagingBlock + static_cast<uint64_t>(receiver) * piece};
  };
  const auto copyIn = [&](uint32_t number) {
    if (!tensors.staged[rank_]) return;
    for (int receiver = 0; receiver < size_; ++receiver) {
      const Block block = pieceOf(receiver, number);
      const uint64_t from = op.resultBegin(receiver, size_) + block.begin;
      if (block.bytes > 0)
        std::memcpy(tensors.output[rank_] + block.staging,
                    static_cast<const char*>(op.input) + from, block.bytes);
    }
  };
  const auto combine = [&](uint32_t number) {
    const Block block = pieceOf(rank_, number);
    if (block.bytes == 0) return;
    const void* inputs[shm::kMaxRanks];
    for (int rank = 0; rank < size_; ++rank)
      inputs[rank] =
          tensors.input[rank] +
          (tensors.staged[rank] ? block.staging : op.resultBegin(rank_, size_) + block.begin);
    void* output = static_cast<char*>(op.output) + block.begin;
    shm::reduce(op.reduceSpec(size_), inputs, size_, &output, 1,
                block.bytes / shm::dtypeSize(op.dtype));
  };
  return forStagedBlocks(op, index, blocks, copyIn, combine, [](uint32_t) {});
}

}  // namespace rueda::client
