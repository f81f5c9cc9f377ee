// SPDX-License-Identifier: Apache-2.0
#pragma once

// The boards of a job: one segment mapped by all its ranks on this host, on which waiting ranks run
// small and blocking collectives with each other (the direct path) while the daemon sleeps. Board n
// is that of process set n, 0 of all ranks. A line is a place in the set.
//
// Ranks of one job and uid trust each other; the daemon does not rely on a byte of it. It writes
// `abort`, may withdraw an operation that not all have posted, and reads posts to say who is
// missing.
//
// Index: each rank numbers its direct operations. Operation i uses half i & 1 of every array: a
// rank can only post i + 2 after all ranks have left i (README.md has the argument).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shm/board_payload.h"
#include "shm/doorbell.h"
#include "shm/layout.h"

namespace rueda::shm {

// (index << 32) | low. `low` is the signature in a post, a count in claims and finishes.
constexpr uint64_t tagged(uint32_t index, uint32_t low) { return uint64_t{index} << 32 | low; }
constexpr uint32_t tagIndex(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
constexpr uint32_t tagLow(uint64_t word) { return static_cast<uint32_t>(word); }
// Signed distance of indices that may wrap.
constexpr int32_t indexAhead(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b); }

// Low half of Withdrawal::verdict.
constexpr uint32_t kVerdictGo = 1;         // All had posted: the operation runs.
constexpr uint32_t kVerdictWithdrawn = 2;  // Somebody had not: all take it to the ring.

// One cache line: the flag and up to 56 bytes travel in one transfer. The line behind it is never
// written (sums of whole vectors read 8 zeros there), since the adjacent-line prefetcher would make
// two ranks share it.
struct alignas(128) PostLine {
  std::atomic<uint64_t> word;  // tagged(index, signature), signature never 0. Its rank writes it.
  union {
    InlineVectors vectors;
    DirectPayload payload;
    RowPayload rows;
  };
};
static_assert(sizeof(PostLine) == 128 && offsetof(PostLine, vectors) == 8);
static_assert(offsetof(PostLine, payload) == 8 && offsetof(PostLine, rows) == 8);

struct alignas(64) ClaimLine {
  std::atomic<uint64_t> word;  // tagged(index, chunks claimed of this slice)
};
static_assert(sizeof(ClaimLine) == 64);

// Progress of a rank through the blocks of a staged operation. Of a gather whose result the library
// places: `copiedIn` is tagged(index, 1) once the place is there.
struct alignas(128) PhaseLine {
  std::atomic<uint64_t> copiedIn;  // tagged(index, blocks ready to be summed)
  std::atomic<uint64_t> summed;    // tagged(index, blocks of which this rank's slice is summed)
  uint64_t outOffset;
  uint32_t outSegment;  // 0: there is no memory for it.
};
static_assert(sizeof(PhaseLine) == 128 && offsetof(PhaseLine, summed) == 8);
static_assert(offsetof(PhaseLine, outOffset) == 16 && offsetof(PhaseLine, outSegment) == 24);

// The daemon sends waiters of operation `index` to the ring. Posting is a plain store without a
// fence; that it and the withdrawal do not miss each other is the work of processBarrier():
//   daemon: intent = index; processBarrier(); verdict = all have posted ? go : withdrawn
//   rank:   post; see that all have posted; read intent; if it is this index, obey the verdict
// If a post was not visible to the daemon after the barrier, it was made after it, so its rank, and
// every rank that sees the post, sees the intent too.
struct Withdrawal {
  std::atomic<uint64_t> intent;   // tagged(index, 1)
  std::atomic<uint64_t> verdict;  // tagged(index, kVerdict…)
};
static_assert(sizeof(Withdrawal) == 16 && offsetof(Withdrawal, verdict) == 8);

// A payload too large for its line, and so small that every rank rather reads the copies of all and
// sums for itself than waits for one that does.
struct alignas(128) CopySlot {
  int64_t splits[kMaxRanks];  // Of an alltoall.
  char bytes[kRowCopyBytes];
};
static_assert(sizeof(CopySlot) == 4608 && offsetof(CopySlot, bytes) == 512);

// How many asynchronous operations a rank has put into its ring. The last rank of those that start
// operation n sees that the others have, and wakes the daemon, which then looks at the rings of
// all: one wake-up for an operation. On who is last they cannot be wrong, as each publishes its own
// count before it reads the others'. Where ranks start different operations the counts say nothing;
// then kAsleepWanting and what a rank does before it sleeps do. A join brings them together again:
// who has joined has started all of this round, and the next begins when all have.
struct alignas(128) StartLine {
  std::atomic<uint64_t> count;  // Its rank. Above the bits of kAllStarted: rounds that are over.
};
static_assert(sizeof(StartLine) == 128);
constexpr uint64_t kAllStarted = (uint64_t{1} << 40) - 1;  // A day of 10^7 a second.

struct Board {
  alignas(64) std::atomic<uint32_t> abort;  // Daemon: nonzero ends every direct operation.
  uint32_t reserved[3];
  Withdrawal withdrawals[2];  // Daemon; on the same line, which hardly ever changes.
  Bell arrival;               // A post completed the set, or there is a verdict.
  Bell done;                  // A sum finished, or a phase went on.
  alignas(64) std::atomic<uint64_t> finished[2][8];  // [half][0]: tagged(index, chunks summed)
  PostLine posts[2][kMaxRanks];
  ClaimLine claims[2][kMaxRanks];
  PhaseLine phases[kMaxRanks];
  StartLine starts[kMaxRanks];
  CopySlot copies[2][kMaxRanks];
};
static_assert(offsetof(Board, withdrawals) == 16 && offsetof(Board, arrival) == 64);
static_assert(offsetof(Board, done) == 128 && offsetof(Board, finished) == 192);
static_assert(offsetof(Board, posts) == 384 && offsetof(Board, claims) == 16768);
static_assert(offsetof(Board, phases) == 24960 && offsetof(Board, starts) == 33152);
static_assert(offsetof(Board, copies) == 41344 && sizeof(Board) == 631168);
static_assert(std::is_standard_layout_v<Board>);

constexpr uint64_t kBoardBytes = (sizeof(Board) + 4095) / 4096 * 4096;
// Of all ranks, and of the rows and columns of kMaxRanks ranks that are cut 8 x 8 (data and model
// parallel). A longer cut has more sets (2 x 32: 34): those with higher numbers do without a board.
// Pages that nobody writes are none.
constexpr uint32_t kBoards = 1 + 8 + 8;
static_assert(kMaxRanks == 8 * 8);
constexpr uint64_t kBoardsBytes = kBoards * kBoardBytes;

// REQUIRES: `boards` are kBoardsBytes of a job's segment, set < kBoards.
inline Board* boardAt(char* boards, uint32_t set) {
  return reinterpret_cast<Board*>(boards + set * kBoardBytes);
}

}  // namespace rueda::shm
