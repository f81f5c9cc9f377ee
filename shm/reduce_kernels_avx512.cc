// SPDX-License-Identifier: Apache-2.0
// The inner loops for AVX-512 F, BW, DQ and VL.
#include "shm/reduce_tables.h"

#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || \
    !defined(__AVX512VL__)
#error "Compile with -mavx512f -mavx512bw -mavx512dq -mavx512vl."
#endif

namespace rueda::shm {

const KernelSet& avx512Kernels(DType dtype, Combine combine) { return kernelsFor(dtype, combine); }

}  // namespace rueda::shm
