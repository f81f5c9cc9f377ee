// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the timeline of this rank gets to know of a flight: it notes moments in the flight, and
// hands them over when it ends. Called with the lock of the flight's owner, or before it has one.

#include "client/cpp/connection.h"
#include "client/cpp/flight.h"
#include "client/cpp/submitter.h"
#include "client/cpp/timeline.h"

namespace rueda::client {

class FlightTimer {
 public:
  // All references outlive this. `isOn`: the job may have a timeline at all.
  FlightTimer(Connection& connection, Timeline& timeline, int rank, bool isOn)
      : connection_(connection), timeline_(timeline), rank_(rank), isOn_(isOn) {}

  // Every rank says when it comes, since rank 0 may be timing it.
  void stamp(const Operation& op, Flight* flight, Submission* submission) const;
  // From the block that stands in for it to the caller's memory.
  static void copyOut(Flight* flight);
  // The rows of a gather are there, or will not come.
  void noteCollected(Flight* flight, int64_t begin, const shm::Status& collected);
  // All that is known of it, at its end.
  void record(Flight* flight);

 private:
  Connection& connection_;
  Timeline& timeline_;
  const int rank_;
  const bool isOn_;
};

}  // namespace rueda::client
