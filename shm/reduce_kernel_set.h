// SPDX-License-Identifier: Apache-2.0
#pragma once

// The border between reduce() and its inner loops: what a loop gets, and the table of loops that
// one instruction set offers for one data type and operation. Pure; any thread. Only the
// reduce_*.cc files of this folder include it.

#include <cstddef>
#include <cstdint>

#include "shm/dtype.h"

namespace rueda::shm {

// How two elements become one. An average is a sum with a scale.
enum class Combine : uint8_t { kAdd, kMultiply, kMin, kMax };

struct KernelCall {
  const void* const* inputs = nullptr;
  void* const* outputs = nullptr;
  int outputCount = 0;
  size_t count = 0;
  double prescale = 1.0;   // Read only by loops that say so.
  double postscale = 1.0;  // The same.
};
using Kernel = void (*)(const KernelCall&);

// Most inputs that one loop combines in registers.
constexpr int kMaxDirectInputs = 8;

// Loops by their number of inputs; nullptr where there is none (the caller then works in blocks).
struct KernelsByInputs {
  Kernel of[kMaxDirectInputs + 1] = {};
};

// *Accumulators* are float for 8-bit and 16-bit floats, else the type itself. They stay within
// blocks that have room for whole vectors, and may lie there in an order of the loops' own. Every
// loop may write over its inputs.
struct KernelSet {
  size_t accumulatorBytes = 0;
  // Elements in, elements out: the whole reduction.
  KernelsByInputs direct;
  KernelsByInputs directPost;     // Applies postscale.
  KernelsByInputs directPrePost;  // Applies prescale and postscale.
  // Elements in, accumulators out. of[1] exists in both.
  KernelsByInputs leaf;
  KernelsByInputs leafPre;  // Applies prescale.
  // Two blocks of accumulators into one.
  Kernel combine = nullptr;
  // One block of accumulators into elements.
  Kernel spread = nullptr;
  Kernel spreadPost = nullptr;    // Applies postscale.
  Kernel spreadDivide = nullptr;  // Integers: divides by postscale, truncating towards zero.
};

// One table per instruction set; each is defined in a file compiled for it, so calling another
// than plainKernels REQUIRES a CPU that has it. Complex types have kMultiply only.
const KernelSet& plainKernels(DType dtype, Combine combine);
const KernelSet& avx2Kernels(DType dtype, Combine combine);
const KernelSet& avx512Kernels(DType dtype, Combine combine);

}  // namespace rueda::shm
