// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes operations and notes into the submission ring and rings the daemon's doorbell when it
// sleeps. Any thread: one lock makes the ring single-producer.

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "client/cpp/connection.h"
#include "client/cpp/operation.h"
#include "shm/entry_tail.h"

namespace rueda::client {

// An operation with the places of its memory, ready to be written.
struct Submission {
  shm::EntryType type = shm::EntryType::kSubmit;
  Operation op;  // name and shape are borrowed
  uint64_t requestId = 0;
  Place input;
  Place output;
  std::vector<int64_t> numbers;  // An alltoall's splits, ranks of a set to add, a set to remove.
  shm::Status refusal;  // Not ok: this rank has no memory for it; `input`, `output` mean nothing.
  uint64_t extra = 0;
  uint8_t flags = 0;
  int64_t submittedNs = 0;  // What the daemon is told of that; 0: nothing.
  uint32_t directIndex = 0;
  uint32_t groupSize = 0;
  uint32_t groupId = 0;
};

class Submitter {
 public:
  // `connection` outlives this.
  Submitter(Connection& connection, int rank, int size);

  // Publishes all of them together, and wakes the daemon. Waits while the ring is full; the
  // session's failure ends that.
  shm::Status write(const std::vector<Submission>& submissions);
  // As write, for operations that nobody on this rank waits for yet: leaves it to the last rank
  // that starts them to wake the daemon.
  shm::Status start(const std::vector<Submission>& submissions);
  // A thread of this rank joins, so that nobody waits for what the rank starts.
  void beginJoin();
  // That join has ended, on all ranks, or has failed.
  void endJoin(bool hasFailed);
  // Wakes the daemon for what start() has left to a napping one. Before this rank waits.
  void hurry();
  // Wakes the daemon if start() did not, so that it can say who is waited for. Before this rank
  // sleeps for such an operation, or asks for its outcome.
  void settle();
  // Makes the daemon look at this client, without a submission.
  void nudge();

 private:
  shm::Status publish(const std::vector<Submission>& submissions);
  shm::Status awaitSpace(int64_t slots);
  bool trusts() const;
  bool mayBeLast(uint64_t started) const;
  bool hasJoined() const;
  std::atomic<uint64_t>& count() const { return connection_.board()->starts[rank_].count; }
  shm::SubmissionEntry encode(const Submission& submission);
  void ringDoorbell();

  Connection& connection_;
  const int rank_;
  const int size_;
  std::atomic<bool> owesDoorbell_{false};  // Orders nothing: settle() rings after a start() it saw.
  std::mutex mutex_;
  shm::RingProducer ring_;       // Guarded by mutex_.
  std::string tail_;             // Guarded by mutex_; of the entry that was encoded last.
  std::thread::id firstThread_;  // Guarded by mutex_; that has written.
  bool hasThreads_ = false;      // Guarded by mutex_; another one has, too.
  int joining_ = 0;              // Guarded by mutex_; threads that join.
  uint64_t startedBefore_ = 0;   // Guarded by mutex_; count() before they marked it.
};

}  // namespace rueda::client
