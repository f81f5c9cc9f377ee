// SPDX-License-Identifier: Apache-2.0
#pragma once

// Brings the rows of gathers that went through the ring to where their caller wants them. Any
// thread; blocks while it copies.

#include "client/cpp/flights.h"
#include "client/cpp/patience.h"

namespace rueda::client {

class RowCollector {
 public:
  // All references outlive this. `isIsolated`: ranks do not map each other's memory.
  RowCollector(Connection& connection, Memory& memory, Patience& patience, Submitter& submitter,
               Flights& flights, FlightTimer& timer, bool isIsolated);

  // Collects the rows of a gather that has ended well, once; a second call does nothing.
  shm::Status collect(uint64_t id);

 private:
  shm::Status collectRows(uint64_t id);
  shm::Status fetchRows(uint64_t id, const char* to, uint64_t bytes);
  shm::Status copyRows(const std::vector<shm::RowBlock>& rows, uint64_t rowBytes, char* to);

  Connection& connection_;
  Memory& memory_;
  Patience& patience_;
  Submitter& submitter_;
  Flights& flights_;
  FlightTimer& timer_;
  const bool isIsolated_;
};

}  // namespace rueda::client
