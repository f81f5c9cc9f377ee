// SPDX-License-Identifier: Apache-2.0
// The inner loops for any x86-64 (SSE2).
#include "shm/reduce_tables.h"

namespace rueda::shm {

const KernelSet& plainKernels(DType dtype, Combine combine) { return kernelsFor(dtype, combine); }

}  // namespace rueda::shm
