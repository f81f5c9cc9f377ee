// SPDX-License-Identifier: Apache-2.0
#pragma once

// One operation on its way through the ring, as its rank keeps it. Values.

#include <memory>
#include <string>
#include <vector>

#include "client/cpp/trace_events.h"
#include "shm/dtype.h"
#include "shm/layout.h"
#include "shm/status.h"

namespace rueda::client {

class DirectPath;

// Rows of all ranks, one behind the other.
struct Gathered {
  const char* data = nullptr;
  uint64_t bytes = 0;
  std::vector<int64_t> firstDims;  // By rank.
};

struct Flight {
  shm::OpKind kind = shm::OpKind::kAllreduce;
  std::string name;
  uint32_t set = 0;
  bool isNamed = true;  // Not a copy of gathered rows.
  bool done = false;
  // The direct path that gave it back, until the thread leaves that keeps it alive, or nullptr.
  DirectPath* detour = nullptr;
  shm::Status status;
  int64_t value = 0;             // Of an agreement.
  char* block = nullptr;         // Arena block that stands in for foreign memory, or nullptr.
  void* copyTo = nullptr;        // Foreign output that gets the block's bytes.
  const char* result = nullptr;  // Where in the block they lie.
  uint64_t resultBytes = 0;
  // Of a gathering kind.
  void* output = nullptr;  // Where the caller wants the rows; nullptr: in a block.
  uint64_t outputRoom = 0;
  uint64_t rowBytes = 0;  // Of one row.
  std::vector<shm::RowBlock> rows;
  std::unique_ptr<Gathered> gathered;
  char* gatheredBlock = nullptr;
  std::unique_ptr<TimedOperation> timed;  // Until it is recorded.
};

}  // namespace rueda::client
