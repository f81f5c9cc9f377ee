// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the tensors of direct operations lie: told to the other ranks, and turned into addresses of
// this process. It owns the two blocks through which this rank's foreign memory goes. The one
// thread that is in a direct operation of the set; ensureStaging: any.

#include <mutex>

#include "client/cpp/board_seat.h"
#include "client/cpp/memory.h"

namespace rueda::client {

constexpr uint64_t kStagingBlock = 256 << 10;  // Measured: stays in cache, few exchanges.

// Every rank's addresses in this process; nullptr where this one may not write.
struct Tensors {
  const char* input[shm::kMaxRanks];
  char* output[shm::kMaxRanks];
  bool staged[shm::kMaxRanks];
  bool hasStaged = false;
};

class TensorPlaces {
 public:
  // All references outlive this. `staging`: two blocks of this rank, or segment 0.
  TensorPlaces(Connection& connection, Memory& memory, const BoardSeat& seat, Place staging)
      : connection_(connection), memory_(memory), seat_(seat), staging_(staging) {}

  // Before an operation is tried: it may be one that needs the blocks. They are made once.
  shm::Status ensureStaging(const Operation& op);
  Place staging() const { return staging_; }

  // Of a sum or a broadcast: what this rank says of its tensors.
  shm::DirectPayload payloadOf(const Operation& op) const;
  // What all have said, as addresses. False: the session has failed.
  bool resolve(const Operation& op, uint32_t index, Tensors* tensors);
  // The address of a peer's memory in this process. nullptr: it is not its, and the session has
  // failed.
  char* placeOf(int rank, Place place, uint64_t bytes);

 private:
  bool needsStaging(const Operation& op) const;

  Connection& connection_;
  Memory& memory_;
  const BoardSeat& seat_;
  std::mutex mutex_;
  // Set once, with the lock, before the first operation that reads it.
  Place staging_;
};

}  // namespace rueda::client
