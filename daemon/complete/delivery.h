// SPDX-License-Identifier: Apache-2.0
#pragma once

// Owns the completion-ring writers: an Outcome becomes ring entries and, once a cycle, one bell for
// each client that sleeps. A full ring keeps a backlog (bounded by the client's operations in
// flight) until the client has read. Engine thread.

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
  // Retries backlogs and rings the bells of sessions that got entries. Returns sessions whose ring
  // indices are impossible: they must be closed.
  std::vector<flow::SessionId> flush();
  bool hasBacklog() const;

 private:
  struct Writer {
    shm::RingProducer ring;
    shm::ControlHeader* control = nullptr;
    std::deque<std::vector<char>> backlog;  // Whole outcomes, entries one behind the other.
    bool dirty = false;
    bool broken = false;
  };

  static void writeBacklog(Writer* writer);

  std::unordered_map<flow::SessionId, Writer> writers_;
  std::vector<flow::SessionId> touched_;
};

}  // namespace rueda::complete
