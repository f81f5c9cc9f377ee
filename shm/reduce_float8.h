// SPDX-License-Identifier: Apache-2.0
#pragma once

// The 8-bit floats as formats, see reduce_formats.h: a vector of bytes becomes one of float32 by
// integer arithmetic, the same on every instruction set. Compiled once per instruction set, see
// reduce_vector.h.

#include "shm/reduce_formats.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// One sign bit, then exponent and mantissa. kInfinite: as IEEE has it, the largest exponent is kept
// for infinity and NaN; else it counts as the others do, there is no infinity, and only 0x7f and
// 0xff are NaN.
template <int kMantissaBits, bool kInfinite>
struct Float8 {
  static constexpr int kBytes = 1;
  static constexpr int kLanes = kVectorBytes / 4;
#ifdef __AVX2__
  static constexpr int kUnroll = 4;
#else
  static constexpr int kUnroll = 1;  // More would only be more code.
#endif
  using Scalar = float;
  using Vector = Floats;
  using Stored = shm::Vector<uint8_t, kLanes>;
  using Accumulator = Native<float>;

  static constexpr int kShift = 23 - kMantissaBits;  // From a mantissa to float32's.
  static constexpr int kBias = (1 << (6 - kMantissaBits)) - 1;
  static constexpr uint32_t kRebias = static_cast<uint32_t>(127 - kBias) << 23;
  static constexpr uint32_t kLeastNormal = 1u << kMantissaBits;
  static constexpr uint32_t kNan = 0x7f;
  // What is too large becomes this: infinity, or the largest number there is.
  static constexpr uint32_t kLargest = kInfinite ? 0x80 - kLeastNormal : kNan - 1;
  // The step between denormals: 2^-9 or 2^-16.
  static constexpr float kStep = 1.0f / static_cast<float>(1u << (kBias - 1 + kMantissaBits));
  static constexpr float kRounder = 0x1p23f * kStep;  // Its last bit counts steps.

  static RUEDA_INLINE Vector widen(Stored stored) {
    using Integers = shm::Vector<int32_t, kLanes>;
    const Words bits = __builtin_convertvector(stored, Words);
    const Words magnitude = bits & 0x7f;
    const Words normal = (magnitude << kShift) + kRebias;
    const Words denormal = (Words)(__builtin_convertvector((Integers)magnitude, Vector) * kStep);
    const Words finite = magnitude < kLeastNormal ? denormal : normal;
    // Infinity or NaN; without the one only the other.
    const Words special = (magnitude << kShift) | 0x7f800000;
    constexpr uint32_t kFirstSpecial = kInfinite ? kLargest : kNan;
    return (Vector)((magnitude >= kFirstSpecial ? special : finite) | ((bits & 0x80) << 24));
  }

  // To nearest, ties to even. REQUIRES: canonical NaNs, whose payload does not carry over.
  static RUEDA_INLINE Stored narrow(Vector vector) {
    const Words bits = (Words)vector;
    const Words magnitude = bits & 0x7fffffff;
    const Words belowHalf = Words{} + ((1u << (kShift - 1)) - 1);
    const Words normal = (magnitude - kRebias + belowHalf + ((magnitude >> kShift) & 1)) >> kShift;
    const Words denormal = (Words)((Vector)magnitude + kRounder) - bitsOf(kRounder);
    const Words finite = magnitude < bitsOf(kStep * kLeastNormal) ? denormal : normal;
    const Words rounded = finite > kLargest ? Words{} + kLargest : finite;
    const Words number = rounded | ((bits >> 24) & 0x80);
    return __builtin_convertvector(magnitude > 0x7f800000 ? Words{} + kNan : number, Stored);
  }

  static RUEDA_INLINE uint32_t bitsOf(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
  }
};

using Float8E4m3fn = Float8<3, false>;
using Float8E5m2 = Float8<2, true>;

}  // namespace
}  // namespace rueda::shm
