// SPDX-License-Identifier: Apache-2.0
// Rows of an allgather or alltoall that neither their giver can write where they are wanted, nor
// their receiver can read where they lie.
#include <algorithm>

#include "client/cpp/direct_rows.h"
#include "shm/copy.h"

namespace rueda::client {

using shm::OpKind;

namespace {

// Of the staging memory: several, so that ranks need not keep step; smaller ones take longer.
constexpr uint64_t kBlockBytes = 128 << 10;
constexpr uint32_t kBlocks = 2 * kStagingBlock / kBlockBytes;

// The same rows cut into blocks. A block holds a piece of the rows for each rank, but in an
// allgather, where they are the same for all.
class Blocks {
 public:
  // `rows` outlives this.
  Blocks(const RowTable& rows, int ranks, bool isAllgather)
      : rows_(rows), ranks_(ranks), isAllgather_(isAllgather) {
    for (int giver = 0; giver < ranks; ++giver)
      for (int receiver = 0; receiver < ranks; ++receiver)
        longest_ = std::max(longest_, rows.bytes(giver, receiver));
  }

  uint32_t count() const { return static_cast<uint32_t>((longest_ + most() - 1) / most()); }

  // Into the giver's staging memory, what others take from there.
  void bring(int giver, uint32_t block, const char* input, char* staging) const {
    for (int receiver = 0; receiver < (isAllgather_ ? 1 : ranks_); ++receiver) {
      if (!isAllgather_ && receiver == giver) continue;
      const Piece piece = pieceOf(giver, receiver, block);
      shm::copyLarge(staging + piece.staging, input + piece.begin, piece.bytes);
    }
  }
  // From there, or from all rows of the giver, to the receiver's result.
  void take(int giver, int receiver, uint32_t block, const char* from, bool isStaged,
            char* to) const {
    const Piece piece = pieceOf(giver, receiver, block);
    shm::copyLarge(to + piece.place, from + (isStaged ? piece.staging : piece.begin), piece.bytes);
  }

 private:
  struct Piece {
    uint64_t begin;    // Bytes into all that the giver has.
    uint64_t place;    // Into the receiver's result.
    uint64_t staging;  // Into the giver's staging memory.
    uint64_t bytes;
  };
  uint64_t most() const {
    return isAllgather_ ? kBlockBytes : kBlockBytes / static_cast<uint64_t>(ranks_) / 64 * 64;
  }
  Piece pieceOf(int giver, int receiver, uint32_t block) const {
    const uint64_t all = rows_.bytes(giver, receiver);
    const uint64_t at = std::min(all, block * most());
    const uint64_t inBlock = isAllgather_ ? 0 : static_cast<uint64_t>(receiver) * most();
    return {rows_.begin(giver, receiver) + at, rows_.place(giver, receiver) + at,
            block % kBlocks * kBlockBytes + inBlock, std::min(most(), all - at)};
  }

  const RowTable& rows_;
  const int ranks_;
  const bool isAllgather_;
  uint64_t longest_ = 0;
};

}  // namespace

// Every rank takes what is for it, one block behind what it brings, and leaves when all have taken
// theirs: else one that closes its session then would end the job under those that still wait.
End DirectRows::moveRowsStaged(const Operation& op, uint32_t index, const RowPosts& posts,
                               char* to) {
  const auto isStaged = [&](int rank) { return posts.of[rank].from == shm::RowsFrom::kStaging; };
  const char* inputs[shm::kMaxRanks];
  for (int giver = 0; giver < seat_.size(); ++giver) {
    inputs[giver] = inputOf(op, index, posts, giver);
    if (inputs[giver] == nullptr) return End::kFailed;
  }
  const Blocks blocks(rows_, seat_.size(), op.kind == OpKind::kAllgather);
  const uint32_t count = blocks.count();
  if (count == 0) return End::kDone;  // All rows are for nobody.
  for (uint32_t b = 0; b <= count; ++b) {
    if (b < count) {
      const End end = b < kBlocks
                          ? End::kDone
                          : seat_.awaitPhases(op, index, true, b + 1 - kBlocks, 0, seat_.size());
      if (end != End::kDone) return end;
      if (isStaged(seat_.rank()))  // Its blocks are memory of its own.
        blocks.bring(seat_.rank(), b, static_cast<const char*>(op.input),
                     const_cast<char*>(inputs[seat_.rank()]));
      seat_.publishPhase(index, false, b + 1);
    }
    if (b == 0) continue;
    if (const End end = seat_.awaitPhases(op, index, false, b, 0, seat_.size()); end != End::kDone)
      return end;
    for (int giver = 0; to != nullptr && giver < seat_.size(); ++giver) {
      const bool isOwn = giver == seat_.rank();
      const auto* const from = isOwn ? static_cast<const char*>(op.input) : inputs[giver];
      blocks.take(giver, seat_.rank(), b - 1, from, !isOwn && isStaged(giver), to);
    }
    seat_.publishPhase(index, true, b);
  }
  return seat_.awaitPhases(op, index, true, count, 0, seat_.size());
}

}  // namespace rueda::client
