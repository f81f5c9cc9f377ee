// SPDX-License-Identifier: Apache-2.0
#pragma once

// A client that writes what it likes: raw messages on the socket, raw entries in the ring. Knows
// the contract of shm/ only. One thread. Every wait ends after a generous deadline.

#include <optional>
#include <string>

#include "shm/board.h"
#include "shm/dtype.h"
#include "shm/mapping.h"
#include "shm/spsc_ring.h"
#include "shm/unix_socket.h"
#include "tests/kit/memory_ring.h"

namespace rueda::kit {

class HostileClient {
 public:
  // Connects; nothing is sent yet. connected() tells whether that worked.
  explicit HostileClient(const std::string& socket);
  bool connected() const { return socket_.valid(); }
  int socket() const { return socket_.get(); }

  // A proper hello, to be spoilt.
  static shm::Hello hello(int rank, int size, const std::string& job = "job");

  template <typename T>
  shm::Status send(const T& message) {
    return shm::sendMessage(socket_.get(), message);
  }
  // The next packet, or nullopt when the daemon has closed the connection (or never answers).
  std::optional<shm::Packet> receive();
  // The text of the next notice of `type`; other packets are skipped. "" when there is none.
  std::string noticeText(shm::MessageType type);
  // True when the connection ends, whatever comes before that.
  bool isClosed();
  void close() { socket_.reset(); }

  // Greets and maps what the welcome brings. False when refused.
  bool join(int rank, int size, const std::string& job = "job");
  // Waits until all ranks have joined.
  bool awaitJob();
  // A segment of `bytes` with its id, or 0.
  uint32_t allocate(uint64_t bytes);

  shm::ControlHeader* control() const {
    return reinterpret_cast<shm::ControlHeader*>(control_.data());
  }
  shm::Board* board() const { return shm::boardAt(board_.data(), 0); }
  shm::RingProducer& submissions() { return submissions_; }
  // Publishes an entry with its tail and rings the doorbell.
  void submit(const shm::SubmissionEntry& entry, const std::vector<int64_t>& shape,
              const std::string& name);
  void ringDoorbell();
  // The next completion, or nullopt when none comes. Tails are skipped.
  std::optional<shm::CompletionEntry> completion();

 private:
  bool waitReadable(int timeoutMs);

  shm::Fd socket_;
  shm::Fd doorbell_;
  shm::Mapping control_;
  shm::Mapping board_;
  shm::RingProducer submissions_;
  shm::RingConsumer completions_;
};

// A float32 allreduce in place at the start of `segment`.
shm::SubmissionEntry allreduceEntry(uint64_t requestId, uint32_t segment);

}  // namespace rueda::kit
