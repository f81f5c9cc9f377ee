// SPDX-License-Identifier: Apache-2.0
#include "daemon/membership/board_keeper.h"

#include <fcntl.h>

#include <cstring>

#include "shm/memfd.h"
#include "shm/process_barrier.h"

namespace rueda::membership {

using shm::indexAhead;
using shm::tagged;
using shm::tagIndex;
using shm::tagLow;

shm::Result<BoardKeeper> BoardKeeper::create() {
  BoardKeeper keeper;
  RUEDA_ASSIGN_OR_RETURN(keeper.memfd_, shm::createSealedMemfd("rueda-board", shm::kBoardsBytes));
  RUEDA_ASSIGN_OR_RETURN(keeper.mapping_,
                         shm::Mapping::map(keeper.memfd_.get(), shm::kBoardsBytes));
  keeper.mapping_.touch(shm::kBoardBytes);
  return keeper;
}

void BoardKeeper::abort() {
  for (uint32_t set = 0; set < shm::kBoards; ++set) {
    board(set)->abort.store(1, std::memory_order_seq_cst);
    shm::ringAlways(board(set)->arrival);
    shm::ringAlways(board(set)->done);
  }
}

uint32_t BoardKeeper::begun(uint32_t set, int place) const {
  const auto indexIn = [&](int half) {
    return tagIndex(board(set)->posts[half][place].word.load(std::memory_order_relaxed));
  };
  return indexAhead(indexIn(1), indexIn(0)) > 0 ? indexIn(1) : indexIn(0);
}

bool BoardKeeper::hasPosted(uint32_t set, int place, uint32_t index) const {
  const uint64_t word = board(set)->posts[index & 1][place].word.load(std::memory_order_acquire);
  return indexAhead(tagIndex(word), index) >= 0;
}

bool BoardKeeper::withdraw(uint32_t set, uint32_t index, int size) {
  shm::Withdrawal& withdrawal = board(set)->withdrawals[index & 1];
  if (withdrawal.intent.load(std::memory_order_relaxed) == tagged(index, 1))
    return tagLow(withdrawal.verdict.load(std::memory_order_relaxed)) == shm::kVerdictWithdrawn;
  withdrawal.intent.store(tagged(index, 1), std::memory_order_seq_cst);
  shm::processBarrier();
  bool allPosted = true;
  for (int place = 0; place < size; ++place) allPosted = allPosted && hasPosted(set, place, index);
  // release: a rank that sees the verdict sees the posts it was given for.
  withdrawal.verdict.store(tagged(index, allPosted ? shm::kVerdictGo : shm::kVerdictWithdrawn),
                           std::memory_order_release);
  shm::ringAlways(board(set)->arrival);
  return !allPosted;
}

void BoardKeeper::clear(uint32_t set) {
  char* const begin = reinterpret_cast<char*>(board(set));
  if (::fallocate(memfd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin - mapping_.data(),
                  static_cast<off_t>(shm::kBoardBytes)) != 0)
    std::memset(begin, 0, shm::kBoardBytes);
}

}  // namespace rueda::membership
