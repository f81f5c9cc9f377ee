// SPDX-License-Identifier: Apache-2.0
#pragma once

// The direct path of a process set: blocking collectives that its waiting ranks carry out with each
// other over the set's board, while the daemon sleeps. What is "rank" here is a place in the set,
// an operation's root, too. An operation that does not come together here (other name, other shape,
// a peer that went to the ring) is given back to be submitted through the ring, where the daemon
// finds out what is wrong. shm/README.md has the rules.

#include <atomic>
#include <optional>

#include "client/cpp/memory.h"
#include "client/cpp/operation.h"
#include "client/cpp/patience.h"
#include "client/cpp/row_table.h"
#include "client/cpp/wait_notes.h"

namespace rueda::client {

// Where this rank is on which board.
struct Seat {
  uint32_t set = 0;
  int place = 0;
  int size = 1;  // Of the set.
};

class DirectPath {
 public:
  enum class End { kDone, kFallback, kFailed, kInterrupted };

  // What came of a run() besides its end.
  struct Attempt {
    bool tried = false;
    uint32_t index = 0;  // If tried: where.
    shm::Status status;  // kDone: whether this rank got its rows; the others have got theirs.
  };

  // All references outlive the path.
  DirectPath(Connection& connection, Memory& memory, Patience& patience, WaitNotes& notes,
             const Seat& seat);

  // Whether the job allows it, and the operation is of a kind that it does. REQUIRES: of this set.
  bool offers(const Operation& op) const;

  // REQUIRES: offers(op). One operation at a time: others get kFallback untried. Until the ring
  // has brought all ranks together again, further operations are given back without a try: only
  // then have all ranks left the lines that this rank would write next. kFailed: the session has
  // failed.
  End run(const Operation& op, Attempt* attempt);

  // An operation that run() tried and gave back has ended in the ring, or could not be submitted.
  // With `index` all ranks had tried it here: they go on there. Any thread, takes no lock.
  void detourEnded(std::optional<uint32_t> index);

  // Whether `op` needs staging memory. Two blocks of it are set once, before the first such one.
  bool needsStaging(const Operation& op) const;
  bool hasStaging() const { return staging_.segment != 0; }
  void setStaging(Place place) { staging_ = place; }
  Place staging() const { return staging_; }            // Segment 0: not set.
  static constexpr uint64_t kStagingBlock = 256 << 10;  // Measured: stays in cache, few exchanges.

 private:
  // Every rank's addresses in this process; nullptr where this one may not write.
  struct Tensors {
    const char* input[shm::kMaxRanks];
    char* output[shm::kMaxRanks];
    bool staged[shm::kMaxRanks];
  };

  // What all ranks have said of a gather.
  struct RowPosts {
    shm::RowPayload of[shm::kMaxRanks];
    bool areCopied;  // All rows lie in the copy slots.
    bool areStaged;  // They go through staging blocks: some can neither be written nor be fetched.
  };

  // How the ranks' posts stand.
  enum class Meeting { kIncomplete, kComplete, kApart };

  // Claims the next chunk of a slice; false when all are taken.
  static bool claimChunk(shm::ClaimLine* line, uint32_t index, uint32_t chunks, uint32_t* chunk);
  void attachAgain();
  End runPosted(const Operation& op, uint32_t index, uint32_t signature);
  End runInline(const Operation& op, uint32_t index, uint32_t signature);
  End runCopied(const Operation& op, uint32_t index, uint32_t signature);
  End runGather(const Operation& op, uint32_t index, uint32_t signature, shm::Status* status);
  bool gives(const Operation& op) const;
  shm::DirectPayload payloadOf(const Operation& op) const;
  void post(uint32_t index, uint32_t signature);
  End awaitPosts(const Operation& op, uint32_t index, uint32_t signature);
  Meeting look(uint32_t index, uint64_t wanted, int* next) const;
  Meeting obeyVerdict(uint32_t index) const;
  void finishInline(const Operation& op, uint32_t index, const shm::InlineVectors& own) const;
  bool resolve(const Operation& op, uint32_t index, Tensors* tensors, bool* staged);
  char* placeOf(int rank, Place place, uint64_t bytes);
  End sumSlices(const Operation& op, uint32_t index, const Tensors& tensors);
  uint32_t sumSlice(const Operation& op, uint32_t index, const Tensors& tensors, uint32_t slice);
  End spread(const Operation& op, uint32_t index, const Tensors& tensors);
  End spreadStaged(const Operation& op, uint32_t index, const Tensors& tensors);
  End awaitReceivers(const Operation& op, uint32_t index, uint32_t blocks);
  End scatter(const Operation& op, uint32_t index, const Tensors& tensors);
  End sumStaged(const Operation& op, uint32_t index, const Tensors& tensors);
  End scatterStaged(const Operation& op, uint32_t index, const Tensors& tensors);
  template <typename CopyIn, typename Combine, typename CopyOut>
  End forStagedBlocks(const Operation& op, uint32_t index, uint32_t blocks, const CopyIn& copyIn,
                      const Combine& combine, const CopyOut& copyOut);
  void postRows(const Operation& op, uint32_t index);
  bool readPosts(const Operation& op, uint32_t index, RowPosts* posts);
  shm::Status placeRows(const Operation& op, char** to);
  void takeCopies(const Operation& op, uint32_t index, char* to) const;
  bool awaitOutput(const Operation& op, uint32_t index, const RowPosts& posts, int receiver,
                   char** to, End* end);
  void showPlace(uint32_t index, const char* to);
  End moveRows(const Operation& op, uint32_t index, const RowPosts& posts, char* to);
  bool fetchRows(const Operation& op, uint32_t index, const RowPosts& posts, char* to);
  const char* inputOf(const Operation& op, uint32_t index, const RowPosts& posts, int giver);
  End moveRowsStaged(const Operation& op, uint32_t index, const RowPosts& posts, char* to);
  End awaitPhases(const Operation& op, uint32_t index, bool summed, uint32_t blocks, int first,
                  int end);
  void publishPhase(uint32_t index, bool summed, uint32_t blocks);
  End awaitFinished(const Operation& op, uint32_t index, uint32_t total);
  bool awaitCopies(uint32_t index, uint32_t total) const;
  void addFinished(uint32_t index, uint32_t chunks, uint32_t total);
  static End toEnd(Waited waited);
  shm::PostLine& line(uint32_t index, int rank) const { return board_->posts[index & 1][rank]; }

  // Constant.
  Connection& connection_;
  Memory& memory_;
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
  RowTable rows_;
};

}  // namespace rueda::client
