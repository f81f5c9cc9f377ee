// SPDX-License-Identifier: Apache-2.0
#pragma once

// Element-wise reduction of k arrays into m arrays in one pass. Pure, any thread, no allocation.
// Lives beside the shared-memory contract because both sides sum: daemon workers and waiting
// clients. The combination order over ranks is fixed (see reduce), so who sums does not matter.

#include <cstddef>

#include "shm/dtype.h"

namespace rueda::shm {

enum class Isa { kPlain, kAvx2, kAvx512 };

// The best instruction set of this CPU, detected once.
Isa bestIsa();
const char* isaName(Isa isa);

struct ReduceSpec {
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int ranks = 1;           // Divisor of kAverage.
  double prescale = 1.0;   // Applied to every input before it is combined.
  double postscale = 1.0;  // Applied to the result; kAverage multiplies it by 1/ranks.
};

// Reads `inputCount` arrays of `count` elements and writes the same result to each of
// `outputCount` arrays. An output may be exactly one of the inputs (in place), but arrays that
// overlap partly are not allowed. No alignment is required.
//
// Order: balanced binary tree over the inputs, aligned blocks of 2^j first: 4 inputs give
// (0+1)+(2+3), 5 give ((0+1)+(2+3))+4. float16 and bfloat16 accumulate in float32 and are
// rounded once (to nearest even). Integers wrap; their scales are applied in float64 and
// truncated towards zero. bool: sum, average and max are "or", product and min are "and".
// The result depends on the inputs only, not on `isa`, alignment or how a range is cut.
//
// REQUIRES: inputCount >= 1.
void reduce(const ReduceSpec& spec, const void* const* inputs, int inputCount,
            void* const* outputs, int outputCount, size_t count, Isa isa = bestIsa());

}  // namespace rueda::shm
