// SPDX-License-Identifier: Apache-2.0
#pragma once

// A tensor segment as the daemon holds it. Shared ownership, since a sum may still read the memory
// of a client that has died: the mapping goes when both its job and the last operation on it are
// gone.

#include <atomic>
#include <cstdint>

#include "shm/fd.h"
#include "shm/mapping.h"
#include "shm/region.h"

namespace rueda::flow {

struct Segment {
  ~Segment() { mapping.dropPages(); }

  uint32_t id = 0;
  int rank = 0;  // Owner.
  uint64_t bytes = 0;
  shm::Fd memfd;
  shm::Mapping mapping;            // Set before `ready`.
  std::atomic<bool> ready{false};  // The owner and the daemon have touched every page.

  shm::Region region() const { return {mapping.data(), mapping.bytes()}; }
};

}  // namespace rueda::flow
