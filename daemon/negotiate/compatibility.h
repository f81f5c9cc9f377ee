// SPDX-License-Identifier: Apache-2.0
#pragma once

// Do the requests of all ranks under one name agree? Pure.

#include "daemon/flow/decision.h"

namespace rueda::negotiate {

// kMismatch names the first thing that differs between the requests, in the order data type,
// operation, shape, scale, reduction, root, with the ranks and both values; of what carries no
// tensor only the operation, and the process set that is to be made or dissolved. Then: can it run
// without those that have joined, is the root a member, and can every rank take part?
shm::Status checkCompatible(const flow::Decision& decision);

}  // namespace rueda::negotiate
