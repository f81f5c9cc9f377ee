// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory that peers and the daemon reach without a copy: blocks of this rank's own segments. Any
// thread; blocks only while the daemon makes a new segment.

#include <map>
#include <mutex>

#include "client/cpp/connection.h"
#include "shm/arena.h"

namespace rueda::client {

class Memory {
 public:
  explicit Memory(Connection& connection) : connection_(connection) {}

  // A 64-byte aligned block. kResourceExhausted names the quota.
  shm::Result<char*> allocate(uint64_t bytes);
  // kInvalidArgument if `pointer` is not the start of a block.
  shm::Status free(void* pointer);
  bool owns(const void* pointer, uint64_t bytes) const {
    return connection_.segments().locate(pointer, bytes).has_value();
  }

 private:
  char* tryArenas(uint64_t bytes);

  Connection& connection_;  // Outlives this.
  std::mutex growMutex_;    // Held while the daemon makes a segment, which may take long.
  uint64_t nextSegmentBytes_ = 4 << 20;    // Guarded by growMutex_. Doubles up to 64 MiB.
  std::mutex mutex_;                       // Taken after growMutex_.
  std::map<uint32_t, shm::Arena> arenas_;  // Guarded by mutex_; by segment.
};

}  // namespace rueda::client
