// SPDX-License-Identifier: Apache-2.0
#pragma once

// Scaling and dividing of integers, as passes over one block. Compiled once per instruction set,
// see reduce_vector.h.

#include "shm/reduce_access.h"
#include "shm/reduce_kernel_set.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// The type's range in float64. kMost is the largest float64 that converts; only for 64 bits, of
// which float64 keeps 53, is it less than the largest integer.
template <typename T>
struct RangeOf {
  static constexpr bool kSigned = T(-1) < T(0);
  static constexpr int kValueBits = sizeof(T) * 8 - (kSigned ? 1 : 0);
  static constexpr double kEnd = 2.0 * static_cast<double>(uint64_t{1} << (kValueBits - 1));
  static constexpr double kLeast = kSigned ? -kEnd : 0.0;
  static constexpr T kMax = static_cast<T>(~uint64_t{0} >> (64 - kValueBits));
  static constexpr double kMost = sizeof(T) == 8 ? kEnd - (kSigned ? 1024.0 : 2048.0) : kEnd - 1.0;
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
  // Narrower ones convert by way of int32, which has all their values.
  static constexpr bool kAtOnce = sizeof(T) == 8 || (sizeof(T) == 4 && !Range::kSigned);

  static RUEDA_INLINE Elements scale(Elements elements, Doubles factor) {
    Doubles value;
    if constexpr (kAtOnce) {
      value = __builtin_convertvector(elements, Doubles);
    } else {
      value = __builtin_convertvector(__builtin_convertvector(elements, Integers), Doubles);
    }
    value = value * factor;
    value = value == value ? value : Doubles{};
    if constexpr (sizeof(T) == 8) {
      const Elements whole = __builtin_convertvector(inRange(value), Elements);
      return value >= Range::kEnd ? Elements{} + Range::kMax : whole;
    } else if constexpr (kAtOnce) {
      return __builtin_convertvector(inRange(value), Elements);
    } else {
      return __builtin_convertvector(__builtin_convertvector(inRange(value), Integers), Elements);
    }
  }

  static RUEDA_INLINE Doubles inRange(Doubles value) {
    value = value > Range::kMost ? broadcast<Doubles>(Range::kMost) : value;
    return value < Range::kLeast ? broadcast<Doubles>(Range::kLeast) : value;
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
template <typename T>
struct Divide64 {
  static void run(const KernelCall& call) {
    const char* from = static_cast<const char*>(call.inputs[0]);
    const T divisor = static_cast<T>(call.postscale);
    for (size_t i = 0; i < call.count * sizeof(T); i += sizeof(T)) {
      T value;
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
