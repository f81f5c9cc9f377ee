// SPDX-License-Identifier: Apache-2.0
#include "shm/arena.h"

#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <random>

namespace {

using rueda::shm::Arena;

constexpr uint64_t kLine = Arena::kAlignment;

}  // namespace

TEST_CASE("an arena without room gives nothing") {
  Arena arena(GENERATE(uint64_t{0}, kLine - 1));
  CHECK(arena.capacity() == 0);
  CHECK_FALSE(arena.allocate(0).has_value());
  CHECK_FALSE(arena.allocate(1).has_value());
  CHECK_FALSE(arena.free(0));
}

TEST_CASE("blocks are whole lines, the empty block too") {
  Arena arena(4 * kLine);
  CHECK(arena.allocate(0) == 0u);
  CHECK(arena.allocate(1) == kLine);
  CHECK(arena.allocate(kLine) == 2 * kLine);
  CHECK(arena.used() == 3 * kLine);
  CHECK(arena.blockBytes(kLine) == kLine);
  CHECK(arena.blockBytes(kLine + 1) == 0);
  CHECK_FALSE(arena.allocate(kLine + 1).has_value());
  CHECK(arena.allocate(kLine).has_value());
  CHECK_FALSE(arena.allocate(0).has_value());
}

TEST_CASE("a block of the whole arena fits, one byte more does not") {
  Arena arena(10 * kLine + 7);
  CHECK(arena.capacity() == 10 * kLine);
  CHECK_FALSE(arena.allocate(10 * kLine + 1).has_value());
  CHECK(arena.allocate(10 * kLine) == 0u);
}

TEST_CASE("sizes near 2^64 are refused, not wrapped") {
  Arena arena(kLine);
  const uint64_t bytes = std::numeric_limits<uint64_t>::max() - GENERATE(0u, 1u, 62u, 63u, 64u);
  CHECK_FALSE(arena.allocate(bytes).has_value());
  CHECK(arena.used() == 0);
}

TEST_CASE("only the start of an allocated block can be freed, once") {
  Arena arena(4 * kLine);
  const uint64_t block = arena.allocate(2 * kLine).value();
  CHECK_FALSE(arena.free(block + kLine));
  CHECK_FALSE(arena.free(block + 1));
  CHECK_FALSE(arena.free(99 * kLine));
  CHECK(arena.free(block));
  CHECK_FALSE(arena.free(block));
  CHECK(arena.used() == 0);
}

TEST_CASE("freed neighbours become one gap, whatever the order") {
  const std::vector<int> order =
      GENERATE(std::vector<int>{0, 1, 2}, std::vector<int>{2, 1, 0}, std::vector<int>{0, 2, 1},
               std::vector<int>{1, 0, 2}, std::vector<int>{1, 2, 0}, std::vector<int>{2, 0, 1});
  Arena arena(3 * kLine);
  for (int i = 0; i < 3; ++i) REQUIRE(arena.allocate(kLine).has_value());
  for (const int i : order) REQUIRE(arena.free(static_cast<uint64_t>(i) * kLine));
  CHECK(arena.allocate(3 * kLine) == 0u);
}

TEST_CASE("the first gap that is large enough is taken") {
  Arena arena(8 * kLine);
  for (int i = 0; i < 8; ++i) REQUIRE(arena.allocate(kLine).has_value());
  for (const uint64_t line : {1u, 3u, 4u, 6u}) REQUIRE(arena.free(line * kLine));
  CHECK(arena.allocate(2 * kLine) == 3 * kLine);
  CHECK(arena.allocate(kLine) == kLine);
  CHECK(arena.allocate(kLine) == 6 * kLine);
}

TEST_CASE("random use agrees with a model that marks every line") {
  const uint32_t seed = Catch::rngSeed() + static_cast<uint32_t>(GENERATE(range(0, 20)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  const uint64_t lines = 1 + random() % 200;
  Arena arena(lines * kLine);
  std::vector<bool> taken(lines);
  std::map<uint64_t, uint64_t> blocks;  // First line → lines.
  // First line of the first gap of `wanted` lines, or `lines`.
  const auto firstFit = [&](uint64_t wanted) {
    for (uint64_t at = 0, free = 0; at < lines; ++at) {
      free = taken[at] ? 0 : free + 1;
      if (free == wanted) return at + 1 - wanted;
    }
    return lines;
  };
  for (int step = 0; step < 500; ++step) {
    if (random() % 5 < 3) {
      const uint64_t bytes = random() % (20 * kLine);
      const uint64_t wanted = std::max<uint64_t>(1, (bytes + kLine - 1) / kLine);
      const uint64_t at = firstFit(wanted);
      const auto got = arena.allocate(bytes);
      REQUIRE(got.has_value() == (at < lines));
      if (!got) continue;
      REQUIRE(*got == at * kLine);
      for (uint64_t i = 0; i < wanted; ++i) taken[at + i] = true;
      blocks[at] = wanted;
    } else {
      const uint64_t at = random() % lines;
      const auto block = blocks.find(at);
      REQUIRE(arena.free(at * kLine) == (block != blocks.end()));
      if (block == blocks.end()) continue;
      for (uint64_t i = 0; i < block->second; ++i) taken[at + i] = false;
      blocks.erase(block);
    }
    const auto used = static_cast<uint64_t>(std::count(taken.begin(), taken.end(), true));
    REQUIRE(arena.used() == used * kLine);
  }
  for (const auto& [at, size] : blocks) REQUIRE(arena.free(at * kLine));
  CHECK(arena.allocate(lines * kLine) == 0u);
}
