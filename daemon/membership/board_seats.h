// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which ranks may be on which board of a job: those of the process sets that there are, and those
// of a removed set until the last of them has left. Pure. Engine thread.

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "shm/board.h"

namespace rueda::membership {

class BoardSeats {
 public:
  // There is a set of these ranks now, ascending. REQUIRES: `set` < shm::kBoards, nobody has a seat
  // there.
  void open(uint32_t set, std::vector<int> ranks);
  // The set is removed; its ranks are asked to leave.
  void close(uint32_t set);
  // `rank` is through with the board of a closed set. True for the last of its ranks: nobody has a
  // seat there any more.
  bool leave(uint32_t set, int rank);

  // By place; empty if nobody may be on that board. REQUIRES: `set` < shm::kBoards.
  const std::vector<int>& ranksOf(uint32_t set) const { return tables_[set].ranks; }
  // Where `rank` posts; nullopt if it may not be there, or no set of that number has a board.
  std::optional<int> placeOf(uint32_t set, int rank) const;

 private:
  struct Table {
    std::vector<int> ranks;
    bool isClosed = false;
    std::set<int> left;
  };
  std::array<Table, shm::kBoards> tables_;
};

}  // namespace rueda::membership
