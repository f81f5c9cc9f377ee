// SPDX-License-Identifier: Apache-2.0
#include "daemon/membership/board_seats.h"

#include <catch2/catch.hpp>
#include <limits>

using rueda::membership::BoardSeats;

TEST_CASE("ranks of a set have places on its board, all others have none") {
  BoardSeats seats;
  seats.open(1, {0, 2, 5});
  CHECK(seats.ranksOf(1) == std::vector<int>{0, 2, 5});
  CHECK(seats.placeOf(1, 0) == 0);
  CHECK(seats.placeOf(1, 5) == 2);
  for (const int rank : {-1, 1, 3, 6}) CHECK_FALSE(seats.placeOf(1, rank));
  CHECK_FALSE(seats.placeOf(2, 0));
  CHECK(seats.ranksOf(2).empty());
}

TEST_CASE("a set without a board seats nobody") {
  BoardSeats seats;
  for (const uint32_t set : {rueda::shm::kBoards, std::numeric_limits<uint32_t>::max()}) {
    CHECK_FALSE(seats.placeOf(set, 0));
    CHECK_FALSE(seats.leave(set, 0));
  }
}

TEST_CASE("ranks of a removed set keep their seats until the last of them has left") {
  BoardSeats seats;
  seats.open(1, {0, 2});
  CHECK_FALSE(seats.leave(1, 0));  // It is there.
  seats.close(1);
  CHECK(seats.ranksOf(1) == std::vector<int>{0, 2});
  CHECK_FALSE(seats.leave(1, 0));
  CHECK_FALSE(seats.leave(1, 0));
  CHECK_FALSE(seats.leave(1, 3));  // Not one of its ranks.
  CHECK(seats.placeOf(1, 0) == 0);
  CHECK(seats.leave(1, 2));
  CHECK(seats.ranksOf(1).empty());
  CHECK_FALSE(seats.leave(1, 2));
  seats.open(1, {1});
  CHECK_FALSE(seats.leave(1, 1));  // The next one is there again.
  CHECK(seats.placeOf(1, 1) == 0);
}
