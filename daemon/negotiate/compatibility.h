// SPDX-License-Identifier: Apache-2.0
#pragma once

// Do the requests of all ranks under one name agree? Pure.

#include <vector>

#include "daemon/flow/request.h"
#include "shm/status.h"

namespace rueda::negotiate {

// `requests` in rank order, one for each rank. kMismatch names the first thing that differs, in the
// order data type, operation, shape, scale, reduction, root, with the ranks and both values; of a
// barrier only the operation is compared.
shm::Status checkCompatible(const std::vector<flow::Request>& requests);

}  // namespace rueda::negotiate
