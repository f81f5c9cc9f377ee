// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pure function: decisions of one cycle become fused operations. Order is kept within a class of
// operations; decisions of another class in between do not end a fusion (look-ahead).

#include <cstdint>
#include <vector>

#include "daemon/flow/fused_op.h"

namespace rueda::fuse {

struct Policy {
  uint64_t fusionBytes = 128u << 20;  // Largest fused operation, of one rank; 0 fuses nothing.
  // How many operations back a decision may look for one to join: bounds planning to linear time.
  // 1 fuses only what follows each other.
  size_t lookBack = 16;
  bool groupsApart = false;  // A group fuses with its own members only.
};

// Fuses allreduces, reducescatters and broadcasts of equal job, process set, dtype, operation,
// scales (and root). Higher priorities come first; else order is kept within a class. Decisions
// with an error, agreements and gathers are left out: the caller has ended them. In a slice of an
// allreduce an input of nullptr stands for zeros.
std::vector<flow::FusedOp> plan(std::vector<flow::Decision> decisions, const Policy& policy);

}  // namespace rueda::fuse
