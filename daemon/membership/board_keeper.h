// SPDX-License-Identifier: Apache-2.0
#pragma once

// The daemon's hold on a job's boards, one for each process set with a number below shm::kBoards:
// it makes them, ends all direct operations when the job ends, and sends waiters to the ring when
// their peers have gone there. Nothing read here is relied on for more than what is told to that
// job. Engine thread.

#include <cstdint>

#include "shm/board.h"
#include "shm/fd.h"
#include "shm/mapping.h"
#include "shm/status.h"

namespace rueda::membership {

class BoardKeeper {
 public:
  static shm::Result<BoardKeeper> create();

  int fd() const { return memfd_.get(); }
  // Ends every direct operation, now and later.
  void abort();
  // True if the rank at `place` of `set` has posted direct operation `index` or a later one.
  bool hasPosted(uint32_t set, int place, uint32_t index) const;
  // The index that it has reached on the set's board, as it says: how many operations it began
  // there, or gave to the ring without a try; modulo 2^32.
  uint32_t begun(uint32_t set, int place) const;
  // Sends the waiters of direct operation `index` to the ring, unless all `size` ranks of the set
  // have posted it: then it runs, and this returns false. The answer for an index is final.
  bool withdraw(uint32_t set, uint32_t index, int size);
  // Makes the set's board as new, and gives its memory back. REQUIRES: no rank is on it.
  void clear(uint32_t set);

 private:
  shm::Board* board(uint32_t set) const {
    return shm::boardAt(mapping_.data(), set);
  }

  shm::Fd memfd_;
  shm::Mapping mapping_;
};

}  // namespace rueda::membership
