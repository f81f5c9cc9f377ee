// SPDX-License-Identifier: Apache-2.0
#pragma once

// One rank's seat at the board of a process set: it shows what this rank has done of a direct
// operation, and waits for what the others have done. It knows nothing of tensors. What is "rank"
// here is a place in the set. The one thread that is in a direct operation of the set.

#include <atomic>

#include "client/cpp/connection.h"
#include "client/cpp/operation.h"
#include "client/cpp/patience.h"
#include "client/cpp/wait_notes.h"

namespace rueda::client {

// Where this rank is on which board.
struct Seat {
  uint32_t set = 0;
  int place = 0;
  int size = 1;   // Of the set.
  Place staging;  // Of an earlier set of that number: two blocks of this rank, or segment 0.
};

// How a direct operation, or a step of it, ended. kFallback: it is for the ring. kFailed: so has
// the session.
enum class End { kDone, kFallback, kFailed, kInterrupted };

class BoardSeat {
 public:
  // All references outlive this.
  BoardSeat(Connection& connection, Patience& patience, WaitNotes& notes, const Seat& seat);

  int rank() const { return place_; }
  int size() const { return size_; }
  shm::PostLine& line(uint32_t index, int rank) const { return board_->posts[index & 1][rank]; }
  shm::CopySlot* copies(uint32_t index) const { return board_->copies[index & 1]; }
  shm::PhaseLine& phase(int rank) const { return board_->phases[rank]; }

  // Shows what lies on this rank's line, and waits until all have. kFallback: they never will.
  End meet(const Operation& op, uint32_t index, uint32_t signature) {
    post(index, signature);
    return awaitPosts(op, index, signature);
  }
  // Claims the next chunk of a slice; false when all are taken.
  bool claimChunk(uint32_t index, uint32_t slice, uint32_t chunks, uint32_t* chunk);
  // Counts chunks that are finished, of `total` in all.
  void addFinished(uint32_t index, uint32_t chunks, uint32_t total);
  End awaitFinished(const Operation& op, uint32_t index, uint32_t total);
  // As awaitFinished after a failure, where it is enough that the others copy on.
  bool awaitCopies(uint32_t index, uint32_t total) const;
  // Says that this rank has come so far, in one of its two counts.
  void publishPhase(uint32_t index, bool summed, uint32_t blocks);
  // Until the ranks from `first` to before `end` have.
  End awaitPhases(const Operation& op, uint32_t index, bool summed, uint32_t blocks, int first,
                  int end);

 private:
  // How the ranks' posts stand.
  enum class Meeting { kIncomplete, kComplete, kApart };

  void post(uint32_t index, uint32_t signature);
  End awaitPosts(const Operation& op, uint32_t index, uint32_t signature);
  Meeting look(uint32_t index, uint64_t wanted, int* next) const;
  Meeting obeyVerdict(uint32_t index) const;
  static End toEnd(Waited waited);

  Connection& connection_;
  Patience& patience_;
  WaitNotes& notes_;
  shm::Board* const board_;
  const int place_;
  const int size_;
  // Cores are shared, where sleeping must be cheap, or there is no other way.
  const bool fencesPosts_;
};

}  // namespace rueda::client
