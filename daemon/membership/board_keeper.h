// SPDX-License-Identifier: Apache-2.0
#pragma once

// The daemon's hold on a job's boards, one for each process set with a number below shm::kBoards:
// it makes them, ends all direct operations when the job ends, and sends waiters to the ring when
// their peers have gone there. Nothing read here is relied on for more than what is told to that
// job. Engine thread.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "daemon/membership/board_seats.h"
#include "shm/board.h"
#include "shm/fd.h"
#include "shm/mapping.h"
#include "shm/status.h"

namespace rueda::membership {

class BoardKeeper {
 public:
  // For a job of `size` ranks, which all have a seat at board 0.
  static shm::Result<BoardKeeper> create(int size);

  int fd() const { return memfd_.get(); }
  const BoardSeats& seats() const { return seats_; }
  // As the seats' functions; when the last rank has left, the board is as new, and its memory is
  // given back.
  void open(uint32_t set, std::vector<int> ranks) { seats_.open(set, std::move(ranks)); }
  void close(uint32_t set) { seats_.close(set); }
  bool leave(uint32_t set, int rank);

  // Ends every direct operation, now and later. Touches the boards where somebody may be, no
  // others: a rank may just have been killed for lack of memory.
  void abort();
  // True if the rank has posted direct operation `index` of the set or a later one. REQUIRES: it
  // has a seat there.
  bool hasPosted(uint32_t set, int rank, uint32_t index) const;
  // True if all that have a seat there have.
  bool hasAllPosts(uint32_t set, uint32_t index) const;
  // Sends the waiters of direct operation `index` to the ring, unless all have posted it: then it
  // runs, and this returns false. The answer for an index is final.
  bool withdraw(uint32_t set, uint32_t index);

  // How many operations the rank began on boards, as it says, or gave to the ring without a try;
  // modulo 2^32.
  uint32_t begunBy(int rank) const;
  // Each operation that all ranks of its set began counts once.
  uint32_t begunByAll() const;

 private:
  shm::Board* board(uint32_t set) const { return shm::boardAt(mapping_.data(), set); }
  uint32_t begunAt(uint32_t set, int place) const;
  uint32_t begunByAllOf(uint32_t set) const;
  void clear(uint32_t set);

  shm::Fd memfd_;
  shm::Mapping mapping_;
  BoardSeats seats_;
  // On boards of sets that all have left.
  std::map<int, uint32_t> begunEarlier_;  // By rank.
  uint32_t begunByAllEarlier_ = 0;
};

}  // namespace rueda::membership
