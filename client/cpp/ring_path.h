// SPDX-License-Identifier: Apache-2.0
#pragma once

// Operations that go through the daemon: it makes their memory reachable, submits them, and waits
// for their outcomes. It owns both rings of this rank and what is on its way in them. Any thread.

#include "client/cpp/check.h"
#include "client/cpp/ring_notes.h"
#include "client/cpp/row_collector.h"

namespace rueda::client {

class RingPath {
 public:
  // All references outlive this.
  RingPath(Connection& connection, Memory& memory, Patience& patience, const ProcessSets& sets,
           FlightTimer& timer);

  // Runs `op`; *submission has what is not in it. `detour`: the direct path that has given it back,
  // or nullptr. *value, if wanted: of an agreement. Blocking.
  shm::Status run(const Operation& op, Submission* submission, DirectPath* detour, int64_t* value);
  // Those of Client.
  shm::Status submit(const std::vector<Operation>& ops, std::vector<uint64_t>* handles);
  shm::Result<bool> poll(uint64_t handle);
  shm::Status wait(uint64_t handle, std::chrono::milliseconds timeout) {
    return await(handle, timeout, nullptr);
  }
  const Gathered* gathered(uint64_t handle);
  shm::Status release(uint64_t handle);
  // Runs the join in *submission.
  shm::Status join(Submission* submission, int64_t* value);

  // Whether an operation of that name is on its way. Cheap while nothing is.
  bool hasName(std::string_view name, uint32_t set) { return flights_.hasName(name, set); }
  // What threads on boards tell the daemon.
  WaitNotes& notes() { return notes_; }

 private:
  shm::Status prepare(const Operation& op, Submission* submission, DirectPath* detour);
  shm::Status placeMemory(const Operation& op, Flight* flight, Submission* submission);
  shm::Status awaitRoom();
  shm::Status await(uint64_t handle, std::chrono::milliseconds timeout, int64_t* value);
  void noteWait(uint64_t handle);
  shm::Status endWait(uint64_t handle, Waited waited, std::chrono::milliseconds timeout);
  shm::Status collect(uint64_t handle);
  void giveRows(const Operation& op, uint64_t id);

  Connection& connection_;
  Memory& memory_;
  Patience& patience_;
  const ProcessSets& sets_;
  FlightTimer& timer_;
  Submitter submitter_;
  Flights flights_;
  RingNotes notes_;
  RowCollector rows_;
};

}  // namespace rueda::client
