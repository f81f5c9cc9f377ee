// SPDX-License-Identifier: Apache-2.0
#pragma once

// What threads on boards tell the daemon, written into the submission ring. Any thread.

#include "client/cpp/flights.h"
#include "client/cpp/wait_notes.h"

namespace rueda::client {

class RingNotes : public WaitNotes {
 public:
  // Both outlive this.
  RingNotes(Submitter& submitter, Flights& flights) : submitter_(submitter), flights_(flights) {}

  uint64_t sleepsInDirect(const Operation& op, uint32_t index) override {
    Submission note;
    note.type = shm::EntryType::kWaitDirect;
    note.op = op;
    note.directIndex = index;
    note.requestId = flights_.newNumber();
    (void)submitter_.write({note});
    return note.requestId;
  }
  void wokeFromDirect(uint64_t wait) override {
    Submission note;
    note.type = shm::EntryType::kWaitEnd;
    note.requestId = wait;
    (void)submitter_.write({note});
  }
  void leavesBoard(uint32_t set) override {
    Submission note;
    note.type = shm::EntryType::kLeaveSet;
    note.op.processSet = set;
    (void)submitter_.write({note});
  }

 private:
  Submitter& submitter_;
  Flights& flights_;
};

}  // namespace rueda::client
