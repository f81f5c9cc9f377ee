// SPDX-License-Identifier: Apache-2.0
#include "shm/region.h"

#include <catch2/catch.hpp>
#include <limits>

namespace {

using rueda::shm::inBounds;
using rueda::shm::Region;

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

}  // namespace

TEST_CASE("a range lies inside when its end does") {
  CHECK(inBounds(0, 0, 0));
  CHECK(inBounds(0, 10, 10));
  CHECK(inBounds(10, 0, 10));
  CHECK(inBounds(9, 1, 10));
  CHECK_FALSE(inBounds(0, 11, 10));
  CHECK_FALSE(inBounds(10, 1, 10));
  CHECK_FALSE(inBounds(11, 0, 10));
}

TEST_CASE("numbers at the edge of 64 bits do not wrap into a region") {
  CHECK_FALSE(inBounds(kMax, 1, 10));
  CHECK_FALSE(inBounds(1, kMax, 10));
  CHECK_FALSE(inBounds(kMax, kMax, 10));
  CHECK_FALSE(inBounds(kMax - 4, 10, 10));  // Their sum is 5 modulo 2^64.
  CHECK_FALSE(inBounds(uint64_t{1} << 63, uint64_t{1} << 63, 10));
  CHECK(inBounds(kMax, 0, kMax));
  CHECK(inBounds(0, kMax, kMax));
  CHECK(inBounds(1, kMax - 1, kMax));
  CHECK_FALSE(inBounds(2, kMax - 1, kMax));
}

TEST_CASE("a region turns ranges inside it into addresses, others into nullptr") {
  char memory[16];
  const Region region{memory, sizeof memory};
  CHECK(region.at(0, 16) == memory);
  CHECK(region.at(15, 1) == memory + 15);
  CHECK(region.at(16, 0) == memory + 16);
  CHECK(region.at(16, 1) == nullptr);
  CHECK(region.at(kMax, 2) == nullptr);
  CHECK(Region{}.at(0, 1) == nullptr);
}
