// SPDX-License-Identifier: Apache-2.0
#pragma once

// Owns the completion-ring writers: an Outcome becomes ring entries and, once a cycle, one bell for
// each client that sleeps. A full ring keeps a backlog until the client has read; a client that
// lets it grow beyond what it can have in flight must be closed. Engine thread.

#include <deque>
#include <unordered_map>
#include <vector>

#include "daemon/flow/outcome.h"
#include "shm/spsc_ring.h"

namespace rueda::complete {

class Delivery {
 public:
  // `slots` and `control` stay mapped until forget(session).
  void addSession(flow::SessionId session, char* slots, shm::ControlHeader* control);
  void forget(flow::SessionId session);

  // Writes or keeps the entries of `outcome`. A session that is gone is ignored.
  void deliver(const flow::Outcome& outcome);
  // A session that must be closed, and why.
  struct Broken {
    flow::SessionId session = 0;
    shm::Status reason;
  };
  // Retries backlogs and rings the bells of sessions that got entries. Returns sessions whose ring
  // indices are impossible, or whose backlog is full; once each.
  std::vector<Broken> flush();
  bool hasBacklog() const;

 private:
  struct Writer {
    shm::RingProducer ring;
    shm::ControlHeader* control = nullptr;
    std::deque<std::vector<char>> backlog;  // Whole outcomes, entries one behind the other.
    bool dirty = false;
    shm::Status broken;  // Not ok: nothing is written any more.
  };
  // An outcome and a release for every operation that a client may have in flight.
  static constexpr size_t kMaxBacklog = 2 * shm::kMaxInFlight;

  static void writeBacklog(Writer* writer);

  std::unordered_map<flow::SessionId, Writer> writers_;
  std::vector<flow::SessionId> touched_;
};

}  // namespace rueda::complete
