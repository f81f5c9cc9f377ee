// SPDX-License-Identifier: Apache-2.0
#pragma once

// One connected client: its socket, credentials, control segment and doorbell. Engine thread only.
// Knows nothing of jobs; what the client wrote is only read through intake and greeting.

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "daemon/flow/request.h"
#include "daemon/submit/greeting.h"
#include "shm/spsc_ring.h"
#include "shm/unix_socket.h"

namespace rueda::submit {

class Session {
 public:
  enum class State { kGreeting, kJoined, kLeft };

  Session(flow::SessionId id, shm::Fd socket, const shm::PeerCredentials& peer,
          flow::TimePoint now);
  ~Session() { gone->store(true, std::memory_order_relaxed); }

  // Makes the control segment and the doorbell, and welcomes the client with them and `boardFd`.
  shm::Status open(const Greeting& greeting, const shm::Welcome& welcome, int boardFd);

  // Sends now or, when the socket is full, as soon as it has room. kResourceExhausted when the
  // client has not read kMaxOutbox messages. `segment`, if given, keeps the descriptor `fd` open
  // meanwhile.
  template <typename T>
  shm::Status send(const T& message, std::shared_ptr<const flow::Segment> segment = nullptr) {
    return sendBytes(&message, sizeof message, std::move(segment));
  }
  // Sends what waits. True when nothing waits any more.
  bool flushOutbox();
  bool hasOutbox() const { return !outbox_.empty(); }

  flow::SessionId id() const { return id_; }
  const shm::PeerCredentials& peer() const { return peer_; }
  int socket() const { return socket_.get(); }
  // For whoever closes it; the session is not to be used any more.
  shm::Fd takeSocket() { return std::move(socket_); }
  int pidfd() const { return pidfd_.get(); }  // -1 on kernels without pidfds.
  int doorbell() const { return doorbell_.get(); }
  shm::ControlHeader* control() const;
  shm::RingConsumer& submissions() { return submissions_; }
  char* completionSlots() const { return mapping_.data() + shm::kCompletionOffset; }
  flow::TimePoint since() const { return since_; }

  State state = State::kGreeting;
  Greeting greeting;
  flow::JobSerial job = 0;
  uint64_t submitted = 0;
  bool isAwake = false;       // Looked at in every turn, and its client knows.
  flow::TimePoint startedAt;  // When the last operation came that nobody waits for.
  bool startsOften = false;   // It came soon after another that is not waited for either.
  uint64_t completed = 0;
  uint32_t fetches = 0;  // Copies of gathered rows under way.
  // Becomes true with the end of this session, for work that nobody else wants.
  const std::shared_ptr<std::atomic<bool>> gone = std::make_shared<std::atomic<bool>>(false);
  uint32_t inFlight = 0;  // Accepted requests without an outcome.

 private:
  struct Waiting {
    std::vector<char> bytes;
    std::shared_ptr<const flow::Segment> segment;
  };
  static constexpr size_t kMaxOutbox = 2048;

  shm::Status sendBytes(const void* data, size_t bytes,
                        std::shared_ptr<const flow::Segment> segment);

  const flow::SessionId id_;
  shm::Fd socket_;
  shm::Fd pidfd_;
  shm::Fd doorbell_;
  const shm::PeerCredentials peer_;
  const flow::TimePoint since_;
  shm::Mapping mapping_;
  shm::RingConsumer submissions_;
  std::deque<Waiting> outbox_;
};

}  // namespace rueda::submit
