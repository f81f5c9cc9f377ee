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
  int ranks = 1;           // Divisor of kAverage, at least 1.
  double prescale = 1.0;   // Applied to every input before it is combined.
  double postscale = 1.0;  // Applied to the result; kAverage multiplies it by 1/ranks.
};

// Reads `inputCount` arrays of `count` elements and writes the same result to each of
// `outputCount` arrays. An output may be exactly one of the inputs (in place), but arrays that
// overlap partly are not allowed. No alignment is required.
//
// Order: balanced binary tree over the inputs, aligned blocks of 2^j first: 4 inputs give
// (0+1)+(2+3), 5 give ((0+1)+(2+3))+4.
//
// | type               | combined in | scaled in                                             |
// |--------------------|-------------|-------------------------------------------------------|
// | float32, float64   | itself      | itself, the factor rounded to it                      |
// | 8- and 16-bit ones | float32     | float32; the result is rounded once, to nearest even  |
// | complex            | itself      | each part as a float32 or float64 of its own          |
// | integers           | itself,     | float64, truncated towards zero; the nearest integer  |
// |                    | wrapping    | of the type if out of its range, 0 for NaN            |
// | bool               | itself      | not at all                                            |
//
// An average of integers without postscale is the exact quotient sum / ranks, truncated (the sum
// wraps first). bool: sum, average and max are "or", product and min are "and"; any byte but 0
// is true, results are 0 or 1. A minimum or maximum with a NaN is NaN, and of two zeros the one
// of the lower input stays. A NaN result is the positive quiet NaN (of 8-bit floats: 0x7f), in
// each part of a complex number by itself. Denormals are kept, whatever the calling thread has
// set. One input without a scale is copied bit by bit (bool as said).
//
// 8-bit floats are rounded as `to(torch.float8_...)` of torch 2.15 does: e4m3fn saturates, so that
// whatever is beyond 448, infinity too, becomes 448 (torch before 2.12 made it NaN); e5m2 does not,
// from 61440 on, the middle between 57344 and 65536, all is infinity. Complex products are
// (ac - bd) + (ad + bc)i in the type itself, as in torch and numpy.
//
// The result depends on the inputs only, not on `isa`, alignment or how a range is cut. Uses
// 4 KiB of stack for each level of the tree above eight inputs.
//
// REQUIRES: inputCount >= 1; op is not kAdasum; canReduce(kAllreduce, dtype, op); the CPU has
// `isa`.
void reduce(const ReduceSpec& spec, const void* const* inputs, int inputCount, void* const* outputs,
            int outputCount, size_t count, Isa isa = bestIsa());

}  // namespace rueda::shm
