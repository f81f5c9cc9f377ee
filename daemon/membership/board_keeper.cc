// SPDX-License-Identifier: Apache-2.0
#include "daemon/membership/board_keeper.h"

#include "shm/memfd.h"

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

bool BoardKeeper::hasPosted(int rank, uint32_t index) const {
  const uint64_t word = board()->posts[index & 1][rank].word.load(std::memory_order_acquire);
  const int32_t ahead = indexAhead(tagIndex(word), index);
  return ahead > 0 || (ahead == 0 && tagLow(word) != shm::kWithdrawn);
}

bool BoardKeeper::withdraw(uint32_t index, int size) {
  for (int rank = 0; rank < size; ++rank) {
    auto& word = board()->posts[index & 1][rank].word;
    uint64_t seen = word.load(std::memory_order_acquire);
    // A bounded number of tries: the owner posts at most once a half while we look.
    for (int attempt = 0; attempt < 4; ++attempt) {
      const int32_t ahead = indexAhead(tagIndex(seen), index);
      if (ahead == 0 && tagLow(seen) != shm::kWithdrawn) break;  // Has posted: look at the next rank.
      // seq_cst: pairs with the owner's compare-exchange; exactly one of the two succeeds.
      if (ahead >= 0 ||
          word.compare_exchange_strong(seen, tagged(index, shm::kWithdrawn), std::memory_order_seq_cst)) {
        shm::ringAlways(board()->arrival);
        return true;
      }
    }
  }
  return false;
}

}  // namespace rueda::membership
