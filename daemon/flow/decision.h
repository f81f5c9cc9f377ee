// SPDX-License-Identifier: Apache-2.0
#pragma once

// What all ranks of a process set run next, or the error that they all report. Values; engine
// thread.

#include <memory>
#include <vector>

#include "daemon/flow/request.h"
#include "shm/status.h"

namespace rueda::flow {

// A member that has joined, and so takes part without a request.
struct JoinedRank {
  int place = 0;         // In the set.
  bool leftOut = false;  // Else it counts with zeros.
};

struct Decision {
  JobSerial job = 0;
  std::shared_ptr<const std::vector<int>> members;  // Ranks of the process set, ascending.
  // Of equal name, at least one. In rank order; of a join in the order in which they came.
  std::vector<Request> requests;
  std::vector<JoinedRank> joined;  // The members without a request.
  shm::Status error;               // Not ok: nothing runs, every rank gets this.
  uint64_t group = 0;              // Nonzero: stays together with decisions of this group.
  TimePoint decidedAt;

  // Of the first rank; but for first dimensions and splits of kinds that gather, of all.
  const TensorSpec& spec() const { return requests.front().spec; }
  int size() const { return static_cast<int>(members->size()); }
};

}  // namespace rueda::flow
