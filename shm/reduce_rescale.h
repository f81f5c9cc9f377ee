// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scaling and dividing of integers, as passes over one block. Compiled once per instruction set,
// see reduce_vector.h.

#include "shm/reduce_kernel_set.h"
#include "shm/reduce_vector.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// The type's range in float64. kMost is the largest float64 that converts; only for 64 bits is it
// less than the largest integer.
template <typename T>
struct RangeOf {
  static constexpr bool kSigned = T(-1) < T(0);
  static constexpr int kValueBits = sizeof(T) * 8 - (kSigned ? 1 : 0);
  static constexpr double kEnd = 2.0 * static_cast<double>(uint64_t{1} << (kValueBits - 1));
  static constexpr double kLeast = kSigned ? -kEnd : 0.0;
  static constexpr double kMost = sizeof(T) == 8 ? kEnd - 1024.0 : kEnd - 1.0;
};

// Element times scale in float64, truncated towards zero; the nearest integer of the type where
// that is out of its range, 0 for NaN.
template <typename T, bool kPre>
struct Rescale {
  static constexpr int kLanes = kVectorBytes / sizeof(double);
  using Doubles = Vector<double, kLanes>;
  using Elements = Vector<T, kLanes>;
  using Integers = Vector<int32_t, kLanes>;
  using Range = RangeOf<T>;

  static RUEDA_INLINE Elements scale(Elements elements, Doubles factor) {
    Doubles value;
    if constexpr (sizeof(T) == 8) {
      value = __builtin_convertvector(elements, Doubles);
    } else {
      value = __builtin_convertvector(__builtin_convertvector(elements, Integers), Doubles);
    }
    value = value * factor;
    value = value == value ? value : Doubles{};
    if constexpr (sizeof(T) == 8) {
      const auto over = value >= Range::kEnd;
      value = value > Range::kMost ? broadcast<Doubles>(Range::kMost) : value;
      value = value < Range::kLeast ? broadcast<Doubles>(Range::kLeast) : value;
      const Elements whole = __builtin_convertvector(value, Elements);
      return over ? Elements{} + INT64_MAX : whole;
    } else {
      value = value > Range::kMost ? broadcast<Doubles>(Range::kMost) : value;
      value = value < Range::kLeast ? broadcast<Doubles>(Range::kLeast) : value;
      return __builtin_convertvector(__builtin_convertvector(value, Integers), Elements);
    }
  }

  static void run(const KernelCall& call) {
    const char* from = static_cast<const char*>(call.inputs[0]);
    const int outputCount = call.outputCount;
    const size_t bytes = call.count * sizeof(T);
    const Doubles factor = broadcast<Doubles>(kPre ? call.prescale : call.postscale);
    size_t i = 0;
    for (; i + sizeof(Elements) <= bytes; i += sizeof(Elements)) {
      const Elements result = scale(load<Elements>(from + i), factor);
      for (int m = 0; m < outputCount; ++m) store(static_cast<char*>(call.outputs[m]) + i, result);
    }
    if (i == bytes) return;
    const Elements result = scale(loadPartial<Elements>(from + i, bytes - i), factor);
    for (int m = 0; m < outputCount; ++m) {
      storePartial(static_cast<char*>(call.outputs[m]) + i, result, bytes - i);
    }
  }
};

// Exact division by postscale, a whole number >= 1. Only 64-bit integers need it: for narrower
// ones a product in float64 gives the same (see divisionFactor in reduce_kernels.cc).
struct Divide64 {
  static void run(const KernelCall& call) {
    const char* from = static_cast<const char*>(call.inputs[0]);
    const int64_t divisor = static_cast<int64_t>(call.postscale);
    for (size_t i = 0; i < call.count * sizeof(int64_t); i += sizeof(int64_t)) {
      int64_t value;
      __builtin_memcpy(&value, from + i, sizeof(value));
      value /= divisor;
      for (int m = 0; m < call.outputCount; ++m) {
        __builtin_memcpy(static_cast<char*>(call.outputs[m]) + i, &value, sizeof(value));
      }
    }
  }
};

}  // namespace
}  // namespace rueda::shm
