// SPDX-License-Identifier: Apache-2.0
#pragma once

// How one request ended. Every accepted request ends in exactly one of these.

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/flow/request.h"
#include "shm/layout.h"
#include "shm/op_times.h"
#include "shm/status.h"

namespace rueda::flow {

struct Outcome {
  SessionId session = 0;
  uint64_t requestId = 0;
  shm::Status status;
  std::vector<shm::RowBlock> rows;      // Of a gather: where each rank's rows lie, by place.
  std::optional<uint32_t> directIndex;  // Where the rank's direct path goes on.
  int64_t value = 0;                    // Join: the rank that joined last; add set: its id.
  bool released = false;                // Not an end: all ranks have copied gather `requestId`.
  // Of a request that is timed, once decided: by rank.
  std::vector<shm::RankTime> rankTimes;
  shm::OpTimes times{};  // If there are rankTimes.
};

}  // namespace rueda::flow
