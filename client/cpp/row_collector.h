// SPDX-License-Identifier: Apache-2.0
#pragma once

// Brings the rows of gathers that went through the ring to where their caller wants them. Any
// thread; blocks while it copies.

#include "client/cpp/flights.h"
#include "client/cpp/patience.h"

namespace rueda::client {

class RowCollector {
 public:
  // All references outlive this.
  RowCollector(Connection& connection, Memory& memory, Patience& patience, Submitter& submitter,
               Flights& flights);

  // Of a gather that has ended well; Flight::gathered has them then.
  shm::Status collect(uint64_t id);

 private:
  shm::Status fetchRows(uint64_t id, const char* to, uint64_t bytes);
  shm::Status copyRows(const std::vector<shm::RowBlock>& rows, uint64_t rowBytes, char* to);

  Connection& connection_;
  Memory& memory_;
  Patience& patience_;
  Submitter& submitter_;
  Flights& flights_;
};

}  // namespace rueda::client
