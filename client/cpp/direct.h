// SPDX-License-Identifier: Apache-2.0
#pragma once

// The direct path: blocking allreduce, broadcast, reducescatter and barrier that the waiting ranks
// of a job carry out with each other over the board, while the daemon sleeps. An operation that
// does not come together here (other name, other shape, a peer that went to the ring) is given back
// to be submitted through the ring, where the daemon finds out what is wrong. shm/README.md has the
// rules.

#include <atomic>
#include <optional>

#include "client/cpp/operation.h"
#include "client/cpp/patience.h"

namespace rueda::client {

// Tells the daemon that this thread sleeps in a direct operation, and that it has woken.
class WaitNotes {
 public:
  virtual ~WaitNotes() = default;
  virtual void sleepsInDirect(const Operation& op, uint32_t index) = 0;
  virtual void wokeFromDirect() = 0;
};

class DirectPath {
 public:
  enum class End { kDone, kFallback, kFailed, kInterrupted };

  // All references outlive the path.
  DirectPath(Connection& connection, Patience& patience, WaitNotes& notes, int rank, int size);

  // True where the job allows it and the operation's kind has it.
  bool offers(const Operation& op) const;

  // REQUIRES: offers(op). One operation at a time: others get kFallback with *tried false.
  // kFallback: *index is where it was tried. Until the ring has brought all ranks together again,
  // further operations are given back without a try: only then have all ranks left the lines that
  // this rank would write next. kFailed: the session has failed.
  End run(const Operation& op, uint32_t* index, bool* tried);

  // An operation that run() gave back with *tried has ended in the ring, or could not be submitted.
  // With `index` all ranks had tried it here: they go on there. Any thread, takes no lock.
  void detourEnded(std::optional<uint32_t> index);

  // Two blocks of this rank's staging memory, set once before the first operation with foreign
  // memory.
  void setStaging(Place place) { staging_ = place; }
  bool hasStaging() const { return staging_.segment != 0; }
  static constexpr uint64_t kStagingBlock = 256 << 10;  // Measured: stays in cache, few exchanges.

 private:
  // Every rank's addresses in this process.
  struct Tensors {
    const char* input[shm::kMaxRanks];
    char* output[shm::kMaxRanks];
    bool staged[shm::kMaxRanks];
  };

  // How the ranks' posts stand.
  enum class Meeting { kIncomplete, kComplete, kApart };

  void attachAgain();
  End runPosted(const Operation& op, uint32_t index, uint32_t signature);
  End runInline(const Operation& op, uint32_t index, uint32_t signature);
  End runCopied(const Operation& op, uint32_t index, uint32_t signature);
  bool gives(const Operation& op) const;
  shm::DirectPayload payloadOf(const Operation& op) const;
  void post(uint32_t index, uint32_t signature);
  End awaitPosts(const Operation& op, uint32_t index, uint32_t signature);
  Meeting look(uint32_t index, uint64_t wanted, int* next) const;
  Meeting obeyVerdict(uint32_t index) const;
  void finishInline(const Operation& op, uint32_t index, const shm::InlineVectors& own) const;
  bool resolve(const Operation& op, uint32_t index, Tensors* tensors, bool* staged);
  End sumSlices(const Operation& op, uint32_t index, const Tensors& tensors);
  uint32_t sumSlice(const Operation& op, uint32_t index, const Tensors& tensors, uint32_t slice);
  End copyFromRoot(const Operation& op, uint32_t index, const Tensors& tensors);
  End scatter(const Operation& op, uint32_t index, const Tensors& tensors);
  End runStaged(const Operation& op, uint32_t index, const Tensors& tensors);
  End scatterStaged(const Operation& op, uint32_t index, const Tensors& tensors);
  template <typename CopyIn, typename Combine, typename CopyOut>
  End forStagedBlocks(const Operation& op, uint32_t index, uint32_t blocks, const CopyIn& copyIn,
                      const Combine& combine, const CopyOut& copyOut);
  End awaitPhase(const Operation& op, uint32_t index, bool summed, uint32_t blocks);
  End awaitFinished(const Operation& op, uint32_t index, uint32_t total);
  bool awaitCopies(uint32_t index, uint32_t others) const;
  void addFinished(uint32_t index, uint32_t chunks, uint32_t total);
  End toEnd(Waited waited) const;
  shm::PostLine& line(uint32_t index, int rank) const { return board_->posts[index & 1][rank]; }

  // Constant.
  Connection& connection_;
  Patience& patience_;
  WaitNotes& notes_;
  shm::Board* const board_;
  const int rank_;
  const int size_;
  const bool
      fencesPosts_;  // Cores are shared, where sleeping must be cheap, or there is no other way.
  std::atomic<uint64_t> resume_{0};   // Bit 32 set, and the index to go on at.
  std::atomic<uint32_t> detours_{0};  // Operations given back that have not ended yet.
  std::atomic<bool> busy_{false};     // A thread is in run().
  // Of the thread in run().
  uint32_t next_ = 1;
  bool detached_ = false;
  Place staging_;
};

}  // namespace rueda::client
