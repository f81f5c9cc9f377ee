// SPDX-License-Identifier: Apache-2.0
#include "daemon/membership/board_keeper.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "shm/memfd.h"
#include "shm/process_barrier.h"

namespace rueda::membership {

using shm::indexAhead;
using shm::tagged;
using shm::tagIndex;
using shm::tagLow;

shm::Result<BoardKeeper> BoardKeeper::create(int size) {
  BoardKeeper keeper;
  RUEDA_ASSIGN_OR_RETURN(keeper.memfd_, shm::createSealedMemfd("rueda-board", shm::kBoardsBytes));
  RUEDA_ASSIGN_OR_RETURN(keeper.mapping_,
                         shm::Mapping::map(keeper.memfd_.get(), shm::kBoardsBytes));
  keeper.mapping_.touch(shm::kBoardBytes);
  std::vector<int> all(static_cast<size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  keeper.open(0, std::move(all));
  return keeper;
}

bool BoardKeeper::leave(uint32_t set, int rank) {
  if (!seats_.placeOf(set, rank)) return false;
  const std::vector<int> ranks = seats_.ranksOf(set);
  const uint32_t byAll = begunByAllOf(set);
  if (!seats_.leave(set, rank)) return false;
  for (size_t place = 0; place < ranks.size(); ++place)
    begunEarlier_[ranks[place]] += begunAt(set, static_cast<int>(place));
  begunByAllEarlier_ += byAll;
  clear(set);
  return true;
}

void BoardKeeper::abort() {
  for (uint32_t set = 0; set < shm::kBoards; ++set) {
    if (seats_.ranksOf(set).empty()) continue;
    board(set)->abort.store(1, std::memory_order_seq_cst);
    shm::ringAlways(board(set)->arrival);
    shm::ringAlways(board(set)->done);
  }
}

bool BoardKeeper::hasPosted(uint32_t set, int rank, uint32_t index) const {
  const shm::PostLine& line = board(set)->posts[index & 1][*seats_.placeOf(set, rank)];
  return indexAhead(tagIndex(line.word.load(std::memory_order_acquire)), index) >= 0;
}

bool BoardKeeper::hasAllPosts(uint32_t set, uint32_t index) const {
  const std::vector<int>& ranks = seats_.ranksOf(set);
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return hasPosted(set, rank, index); });
}

bool BoardKeeper::withdraw(uint32_t set, uint32_t index) {
  shm::Withdrawal& withdrawal = board(set)->withdrawals[index & 1];
  if (withdrawal.intent.load(std::memory_order_relaxed) == tagged(index, 1))
    return tagLow(withdrawal.verdict.load(std::memory_order_relaxed)) == shm::kVerdictWithdrawn;
  withdrawal.intent.store(tagged(index, 1), std::memory_order_seq_cst);
  shm::processBarrier();
  const bool allPosted = hasAllPosts(set, index);
  // release: a rank that sees the verdict sees the posts it was given for.
  withdrawal.verdict.store(tagged(index, allPosted ? shm::kVerdictGo : shm::kVerdictWithdrawn),
                           std::memory_order_release);
  shm::ringAlways(board(set)->arrival);
  return !allPosted;
}

uint32_t BoardKeeper::begunAt(uint32_t set, int place) const {
  const auto indexIn = [&](int half) {
    return tagIndex(board(set)->posts[half][place].word.load(std::memory_order_relaxed));
  };
  return indexAhead(indexIn(1), indexIn(0)) > 0 ? indexIn(1) : indexIn(0);
}

uint32_t BoardKeeper::begunByAllOf(uint32_t set) const {
  const auto places = static_cast<int>(seats_.ranksOf(set).size());
  uint32_t fewest = places == 0 ? 0 : begunAt(set, 0);
  for (int place = 1; place < places; ++place)
    if (const uint32_t begun = begunAt(set, place); indexAhead(fewest, begun) > 0) fewest = begun;
  return fewest;
}

uint32_t BoardKeeper::begunBy(int rank) const {
  const auto earlier = begunEarlier_.find(rank);
  uint32_t begun = earlier == begunEarlier_.end() ? 0 : earlier->second;
  for (uint32_t set = 0; set < shm::kBoards; ++set)
    if (const auto place = seats_.placeOf(set, rank)) begun += begunAt(set, *place);
  return begun;
}

uint32_t BoardKeeper::begunByAll() const {
  uint32_t begun = begunByAllEarlier_;
  for (uint32_t set = 0; set < shm::kBoards; ++set) begun += begunByAllOf(set);
  return begun;
}

void BoardKeeper::clear(uint32_t set) {
  char* const begin = reinterpret_cast<char*>(board(set));
  if (::fallocate(memfd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin - mapping_.data(),
                  static_cast<off_t>(shm::kBoardBytes)) != 0)
    std::memset(begin, 0, shm::kBoardBytes);
}

}  // namespace rueda::membership
