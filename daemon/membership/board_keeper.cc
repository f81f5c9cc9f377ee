// SPDX-License-Identifier: Apache-2.0
#include "daemon/membership/board_keeper.h"

#include "shm/memfd.h"
#include "shm/process_barrier.h"

namespace rueda::membership {

using shm::indexAhead;
using shm::tagged;
using shm::tagIndex;
using shm::tagLow;

shm::Result<BoardKeeper> BoardKeeper::create() {
  BoardKeeper keeper;
  RUEDA_ASSIGN_OR_RETURN(keeper.memfd_, shm::createSealedMemfd("rueda-board", shm::kBoardBytes));
  RUEDA_ASSIGN_OR_RETURN(keeper.mapping_, shm::Mapping::map(keeper.memfd_.get(), shm::kBoardBytes));
  keeper.mapping_.touch();
  return keeper;
}

void BoardKeeper::abort() {
  board()->abort.store(1, std::memory_order_seq_cst);
  shm::ringAlways(board()->arrival);
  shm::ringAlways(board()->done);
}

uint32_t BoardKeeper::begun(int rank) const {
  const auto indexIn = [&](int half) {
    return tagIndex(board()->posts[half][rank].word.load(std::memory_order_relaxed));
  };
  return indexAhead(indexIn(1), indexIn(0)) > 0 ? indexIn(1) : indexIn(0);
}

bool BoardKeeper::hasPosted(int rank, uint32_t index) const {
  const uint64_t word = board()->posts[index & 1][rank].word.load(std::memory_order_acquire);
  return indexAhead(tagIndex(word), index) >= 0;
}

bool BoardKeeper::withdraw(uint32_t index, int size) {
  shm::Withdrawal& withdrawal = board()->withdrawals[index & 1];
  if (withdrawal.intent.load(std::memory_order_relaxed) == tagged(index, 1))
    return tagLow(withdrawal.verdict.load(std::memory_order_relaxed)) == shm::kVerdictWithdrawn;
  withdrawal.intent.store(tagged(index, 1), std::memory_order_seq_cst);
  shm::processBarrier();
  bool allPosted = true;
  for (int rank = 0; rank < size; ++rank) allPosted = allPosted && hasPosted(rank, index);
  // release: a rank that sees the verdict sees the posts it was given for.
  withdrawal.verdict.store(tagged(index, allPosted ? shm::kVerdictGo : shm::kVerdictWithdrawn),
                           std::memory_order_release);
  shm::ringAlways(board()->arrival);
  return !allPosted;
}

}  // namespace rueda::membership
