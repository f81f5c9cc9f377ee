// SPDX-License-Identifier: Apache-2.0
#include "daemon/membership/board_seats.h"

#include <algorithm>
#include <utility>

namespace rueda::membership {

void BoardSeats::open(uint32_t set, std::vector<int> ranks) {
  tables_[set] = {std::move(ranks), false, {}};
}

void BoardSeats::close(uint32_t set) { tables_[set].isClosed = true; }

bool BoardSeats::leave(uint32_t set, int rank) {
  if (!placeOf(set, rank) || !tables_[set].isClosed) return false;
  Table& table = tables_[set];
  table.left.insert(rank);
  if (table.left.size() < table.ranks.size()) return false;
  table = {};
  return true;
}

std::optional<int> BoardSeats::placeOf(uint32_t set, int rank) const {
  if (set >= shm::kBoards) return std::nullopt;
  const std::vector<int>& ranks = tables_[set].ranks;
  const auto it = std::lower_bound(ranks.begin(), ranks.end(), rank);
  if (it == ranks.end() || *it != rank) return std::nullopt;
  return static_cast<int>(it - ranks.begin());
}

}  // namespace rueda::membership
