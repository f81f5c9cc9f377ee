// SPDX-License-Identifier: Apache-2.0
#include "daemon/membership/board_keeper.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <thread>

#include "shm/mapping.h"
#include "shm/process_barrier.h"

using namespace rueda;  // NOLINT(google-build-using-namespace): a test file
using shm::tagged;

namespace {

constexpr uint32_t kSignature = 77;

struct Fixture {
  Fixture()
      : keeper(std::move(membership::BoardKeeper::create(2)).value()),
        mapping(std::move(shm::Mapping::map(keeper.fd(), shm::kBoardsBytes)).value()),
        board(boardOf(0)) {}

  void post(int place, uint32_t index, uint32_t set = 0) {
    boardOf(set)->posts[index & 1][place].word.store(tagged(index, kSignature),
                                                     std::memory_order_release);
  }
  shm::Board* boardOf(uint32_t set) { return shm::boardAt(mapping.data(), set); }
  uint64_t bytesInUse() const {
    struct stat status {};
    REQUIRE(::fstat(keeper.fd(), &status) == 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  }
  uint64_t verdict(uint32_t index) const { return board->withdrawals[index & 1].verdict.load(); }

  membership::BoardKeeper keeper;
  shm::Mapping mapping;
  shm::Board* board;
};

}  // namespace

TEST_CASE("nobody has posted on a new board") {
  Fixture f;
  REQUIRE_FALSE(f.keeper.hasPosted(0, 0, 1));
  f.post(0, 1);
  REQUIRE(f.keeper.hasPosted(0, 0, 1));
  REQUIRE_FALSE(f.keeper.hasPosted(0, 1, 1));
}

TEST_CASE("a later post of a rank counts as having posted, also across the wrap of indices") {
  Fixture f;
  f.post(0, 5);
  REQUIRE(f.keeper.hasPosted(0, 0, 3));
  REQUIRE_FALSE(f.keeper.hasPosted(0, 0, 7));
  f.post(1, 1);
  REQUIRE(f.keeper.hasPosted(0, 1, 0xffffffffu));
}

TEST_CASE("an operation is withdrawn only while a rank is missing, and the answer is final") {
  Fixture f;
  f.post(0, 1);
  SECTION("one is missing: withdrawn, whatever comes after") {
    REQUIRE(f.keeper.withdraw(0, 1));
    REQUIRE(f.verdict(1) == tagged(1, shm::kVerdictWithdrawn));
    f.post(1, 1);
    REQUIRE(f.keeper.withdraw(0, 1));
    REQUIRE(f.verdict(1) == tagged(1, shm::kVerdictWithdrawn));
  }
  SECTION("all are there: it runs") {
    f.post(1, 1);
    REQUIRE_FALSE(f.keeper.withdraw(0, 1));
    REQUIRE(f.verdict(1) == tagged(1, shm::kVerdictGo));
  }
  SECTION("the halves do not touch each other") {
    REQUIRE(f.keeper.withdraw(0, 1));
    REQUIRE(f.keeper.withdraw(0, 2));
    REQUIRE(f.verdict(1) == tagged(1, shm::kVerdictWithdrawn));
    REQUIRE(f.verdict(2) == tagged(2, shm::kVerdictWithdrawn));
  }
}

TEST_CASE("abort is seen by everybody who maps the boards") {
  Fixture f;
  const uint32_t set = GENERATE(0u, 1u, shm::kBoards - 1);
  if (set != 0) f.keeper.open(set, {0, 1});
  const bool isRemoved = GENERATE(false, true);
  if (isRemoved && set != 0) {
    f.keeper.close(set);
    REQUIRE_FALSE(f.keeper.leave(set, 1));
  }
  REQUIRE(f.boardOf(set)->abort.load() == 0);
  f.keeper.abort();
  REQUIRE(f.boardOf(set)->abort.load() != 0);
}

// Once a page of every board was written when a rank had been killed for lack of memory.
TEST_CASE("abort takes no memory for boards where nobody can be") {
  Fixture f;
  f.keeper.open(2, {0, 1});
  f.keeper.open(3, {0});
  f.keeper.close(3);
  REQUIRE(f.keeper.leave(3, 0));
  const uint64_t before = f.bytesInUse();
  f.keeper.abort();
  CHECK(f.bytesInUse() - before == 4096);  // Of set 2, which had none yet.
}

TEST_CASE("the boards of process sets do not know of each other") {
  Fixture f;
  for (const uint32_t set : {2, 3}) f.keeper.open(set, {0, 1});
  f.post(0, 1, 3);
  CHECK(f.keeper.hasPosted(3, 0, 1));
  CHECK_FALSE(f.keeper.hasPosted(0, 0, 1));
  CHECK_FALSE(f.keeper.hasPosted(2, 0, 1));
  REQUIRE(f.keeper.withdraw(3, 1));
  CHECK(f.verdict(1) == 0);
}

TEST_CASE("what a rank began counts on all its boards, what all of a set began counts once") {
  // Once the job's number was that of the board of all ranks, those of the ranks of all boards.
  Fixture f;
  f.keeper.open(1, {0, 1});
  f.keeper.open(2, {1});
  for (const int rank : {0, 1}) f.post(rank, 4);
  f.post(0, 7, 1);
  f.post(1, 6, 1);
  f.post(0, 9, 2);  // Rank 1, which is at place 0 there.
  CHECK(f.keeper.begunBy(0) == 4 + 7);
  CHECK(f.keeper.begunBy(1) == 4 + 6 + 9);
  CHECK(f.keeper.begunByAll() == 4 + 6 + 9);
  f.keeper.close(1);
  for (const int rank : {1, 0}) f.keeper.leave(1, rank);
  CHECK(f.keeper.begunBy(0) == 4 + 7);
  CHECK(f.keeper.begunBy(1) == 4 + 6 + 9);
  CHECK(f.keeper.begunByAll() == 4 + 6 + 9);
}

TEST_CASE("the rank that is behind is found across the wrap of indices") {
  Fixture f;
  for (const uint32_t index : {0u, 1u}) f.post(0, index);
  for (const uint32_t index : {0xfffffffeu, 0xffffffffu}) f.post(1, index);
  CHECK(f.keeper.begunByAll() == 0xffffffffu);
}

TEST_CASE("a board that all have left is as new, and the others stay as they are") {
  Fixture f;
  for (const uint32_t set : {1, 2}) f.keeper.open(set, {0, 1});
  for (uint32_t set = 0; set < 3; ++set) f.post(0, 1, set);
  REQUIRE(f.keeper.withdraw(1, 1));
  f.keeper.close(1);
  CHECK_FALSE(f.keeper.leave(1, 0));
  REQUIRE(f.keeper.leave(1, 1));
  f.keeper.open(1, {0, 1});
  CHECK_FALSE(f.keeper.hasPosted(1, 0, 1));
  CHECK(f.boardOf(1)->withdrawals[1].intent.load() == 0);
  CHECK(f.keeper.hasPosted(0, 0, 1));
  CHECK(f.keeper.hasPosted(2, 0, 1));
  f.post(1, 5, 1);
  CHECK(f.keeper.hasPosted(1, 1, 5));
}

// Withdrawn operations were once decided by compare-exchange; since posts carry no fence, the
// barrier alone keeps a rank from running what the others take to the ring.
TEST_CASE("a post that races with a withdrawal is never half of each") {
  REQUIRE(shm::registerForProcessBarrier());
  constexpr uint32_t kRounds = 3000;
  Fixture f;
  std::atomic<uint32_t> round{0};
  std::atomic<uint32_t> ran{0};
  std::atomic<uint32_t> bad{0};
  // Rank 1: posts without a fence, then looks at the intent, as the client does.
  std::thread poster([&] {
    for (uint32_t index = 1; index <= kRounds; ++index) {
      while (round.load(std::memory_order_acquire) != index) std::this_thread::yield();
      for (volatile uint32_t spin = 0; spin < index % 64; ++spin) continue;
      f.post(1, index);
      const shm::Withdrawal& withdrawal = f.board->withdrawals[index & 1];
      bool runs = true;
      if (withdrawal.intent.load(std::memory_order_acquire) == tagged(index, 1)) {
        while (shm::tagIndex(withdrawal.verdict.load(std::memory_order_acquire)) != index)
          std::this_thread::yield();
        runs = f.verdict(index) == tagged(index, shm::kVerdictGo);
      }
      ran.store(index << 1 | (runs ? 1u : 0u), std::memory_order_release);
    }
  });
  for (uint32_t index = 1; index <= kRounds; ++index) {
    f.post(0, index);
    round.store(index, std::memory_order_release);
    const bool withdrawn = f.keeper.withdraw(0, index);
    while (ran.load(std::memory_order_acquire) >> 1 != index) std::this_thread::yield();
    const bool posterRan = (ran.load() & 1) != 0;
    if (withdrawn == posterRan) ++bad;
  }
  poster.join();
  REQUIRE(bad == 0);
}
