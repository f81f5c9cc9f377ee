// SPDX-License-Identifier: Apache-2.0
#pragma once

// Pure function: decisions of one cycle become fused operations. Order is kept within a class of
// operations; decisions of another class in between do not end a fusion (look-ahead).

#include <cstdint>
#include <vector>

#include "daemon/flow/fused_op.h"

namespace rueda::fuse {

// Fuses allreduces and broadcasts of equal job, dtype, operation, scales (and root) up to
// `fusionBytes` of one rank; 0 fuses nothing. Decisions with an error, barriers and allgathers are
// left out: the caller has ended them.
std::vector<flow::FusedOp> plan(std::vector<flow::Decision> decisions, uint64_t fusionBytes);

}  // namespace rueda::fuse
