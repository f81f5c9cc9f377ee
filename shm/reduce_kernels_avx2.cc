// SPDX-License-Identifier: Apache-2.0
// The inner loops for AVX2 and F16C.
#include "shm/reduce_tables.h"

#if !defined(__AVX2__) || !defined(__F16C__)
#error "Compile with -mavx2 -mf16c."
#endif

namespace rueda::shm {

const KernelSet& avx2Kernels(DType dtype, Combine combine) { return kernelsFor(dtype, combine); }

}  // namespace rueda::shm
