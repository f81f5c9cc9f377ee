// SPDX-License-Identifier: Apache-2.0
#pragma once

// The direct path of a process set: blocking collectives that its waiting ranks carry out with each
// other over the set's board, while the daemon sleeps. It numbers the operations and decides which
// are tried: one that does not come together here (other name, other shape, a peer that went to the
// ring) is given back to be submitted through the ring, where the daemon finds out what is wrong.
// shm/README.md has the rules. Any thread.

#include <atomic>
#include <optional>

#include "client/cpp/direct_rows.h"
#include "client/cpp/direct_small.h"
#include "client/cpp/direct_spread.h"
#include "client/cpp/direct_sum.h"

namespace rueda::client {

class DirectPath {
 public:
  // What came of a run() besides its end.
  struct Attempt {
    bool tried = false;
    uint32_t index = 0;  // If tried: where.
    shm::Status status;  // kDone: whether this rank got its rows; the others have got theirs.
  };

  // All references outlive the path.
  DirectPath(Connection& connection, Memory& memory, Patience& patience, WaitNotes& notes,
             const Seat& seat);

  // Whether this rank is the only one of the set; then there is nothing to offer.
  bool isAlone() const { return seat_.size() == 1; }
  // Whether the job allows it, and the operation is of a kind that it does. REQUIRES: of this set.
  bool offers(const Operation& op) const;

  // Before run().
  shm::Status prepare(const Operation& op) { return places_.ensureStaging(op); }
  // REQUIRES: offers(op), whose root is a place in the set. One operation at a time: others get
  // kFallback untried. Until the ring has brought all ranks together again, further operations are
  // given back without a try: only then have all ranks left the lines that this rank would write
  // next. kFailed: the session has failed.
  End run(const Operation& op, Attempt* attempt);

  // An operation that run() tried and gave back has ended in the ring, or could not be submitted.
  // With `index` all ranks had tried it here: they go on there. Any thread, takes no lock.
  void detourEnded(std::optional<uint32_t> index);

  // For the next set of that number: peers may still read there.
  Place staging() const { return places_.staging(); }

 private:
  void attachAgain();
  End runPosted(const Operation& op, uint32_t index, uint32_t signature);

  Connection& connection_;
  std::atomic<uint64_t> resume_{0};   // Bit 32 set, and the index to go on at.
  std::atomic<uint32_t> detours_{0};  // Operations given back that have not ended yet.
  std::atomic<bool> busy_{false};     // A thread is in run().
  // Of the thread in run().
  uint32_t next_ = 1;
  bool detached_ = false;
  BoardSeat seat_;
  TensorPlaces places_;
  DirectSmall small_;
  DirectSum sum_;
  DirectSpread spread_;
  DirectRows rows_;
};

}  // namespace rueda::client
