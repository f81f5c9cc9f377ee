// SPDX-License-Identifier: Apache-2.0
#pragma once

// The Unix socket to the daemon: handshake, segments, and the news that the job or the daemon has
// ended. There is no thread behind it: whoever waits for something looks at the socket now and
// then.

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "client/cpp/options.h"
#include "client/cpp/segments.h"
#include "shm/board.h"
#include "shm/unix_socket.h"

namespace rueda::client {

// How long a segment that a peer has shown may take to arrive.
constexpr int kSegmentTimeoutMs = 10000;

class Connection {
 public:
  // Connects, greets, and waits until all ranks of the job are there. Blocking.
  static shm::Result<std::unique_ptr<Connection>> open(const Options& options);
  // Says goodbye, unless the process is a forked child.
  ~Connection();

  // A new own segment of at least `bytes`, mapped, touched and shown to the peers. Blocking.
  shm::Result<uint32_t> addSegment(uint64_t bytes);

  // Reads what the daemon has sent. Any thread, does not block.
  void pump();
  // Waits up to `timeoutMs` for a peer's segment that is on its way. kInternal if it does not come,
  // kResourceExhausted if there is no memory to map it.
  shm::Status awaitSegment(uint32_t id, int timeoutMs);

  // What ended the session, or ok. Sticky. Any thread.
  shm::Status failure() const;
  bool hasFailed() const { return failed_.load(std::memory_order_acquire); }
  // The daemon is gone. A job can fail, and its daemon still answer.
  bool isLost() const { return lost_.load(std::memory_order_acquire); }
  // Ends the session from this side (an interrupted collective); the first reason wins.
  void fail(const shm::Status& status);
  // As failure(), for a board that says the job is over: waits a moment for the text.
  shm::Status awaitFailure();

  // The process forked: this copy of the session is not to be used.
  bool isForked() const;

  // Whether other processes can put memory barriers on this one.
  bool hasProcessBarrier() const { return hasProcessBarrier_; }

  shm::ControlHeader* control() const;
  // Of a process set with a number below shm::kBoards; 0: of all ranks.
  shm::Board* board(uint32_t set = 0) const;
  const shm::Welcome& policy() const { return welcome_; }
  // Whether the ranks of the job do not map each other's memory.
  bool isIsolated() const { return isIsolated_; }
  int doorbell() const { return doorbell_.get(); }
  Segments& segments() { return segments_; }
  const Segments& segments() const { return segments_; }

 private:
  explicit Connection(std::function<bool()> interrupted);
  shm::Status greet(const Options& options);
  shm::Status awaitWelcome(const Options& options);
  shm::Status awaitJob(const Options& options);
  // A segment that the daemon has granted, or shown, and that is not mapped.
  struct Granted {
    uint32_t id;
    uint64_t bytes;
    shm::Fd memfd;
  };
  // REQUIRES, as the four below: socketMutex_ held, or not open yet.
  shm::Status handlePacket(shm::Packet* packet);
  // One packet, if one comes within timeoutMs. An error has ended the session.
  shm::Status handleNext(int timeoutMs, bool* got);
  shm::Status mapPeers(const Granted& segment);
  // Asks the daemon for a segment, which is then the last of unused_.
  shm::Status awaitGrant(uint64_t bytes);
  // Ends the session if its user has asked for an end; for waits that hold socketMutex_.
  bool isInterrupted();
  // One packet, waiting up to timeoutMs. False when none came. REQUIRES: socketMutex_ held.
  shm::Result<bool> receive(int timeoutMs, shm::Packet* packet);

  shm::Fd socket_;
  shm::Fd doorbell_;
  shm::Mapping control_;
  shm::Mapping boards_;
  shm::Welcome welcome_{};
  bool isIsolated_ = false;
  Segments segments_;
  const std::function<bool()> interrupted_;
  const uint32_t forkGeneration_;
  const bool hasProcessBarrier_;

  std::mutex socketMutex_;              // Held by the one that reads the socket.
  std::vector<Granted> unused_;         // Own ones. Guarded by socketMutex_.
  std::vector<Granted> unmappedPeers_;  // For lack of memory. Guarded by socketMutex_.
  mutable std::mutex failureMutex_;
  shm::Status failure_;  // Guarded by failureMutex_.
  std::atomic<bool> failed_{false};
  std::atomic<bool> lost_{false};
};

}  // namespace rueda::client
