// SPDX-License-Identifier: Apache-2.0
#pragma once

// What all ranks of a job run next, or the error that they all report. Values; engine thread.

#include <vector>

#include "daemon/flow/request.h"
#include "shm/status.h"

namespace rueda::flow {

struct Decision {
  JobSerial job = 0;
  std::vector<Request> requests;  // One for each rank, in rank order, of equal name.
  shm::Status error;              // Not ok: nothing runs, every rank gets this.
  uint64_t group = 0;             // Nonzero: stays together with decisions of this group.

  const TensorSpec& spec() const { return requests.front().spec; }
};

}  // namespace rueda::flow
