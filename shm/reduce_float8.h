// SPDX-License-Identifier: Apache-2.0
#pragma once

// The 8-bit floats as formats, see reduce_formats.h: bytes become float32 by integer arithmetic,
// the same on every instruction set. Compiled once per instruction set, see reduce_vector.h.

#include "shm/reduce_combine.h"
#include "shm/reduce_formats.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// Accumulators of elements 0, 4, 8, ..., of 1, 5, 9, ... and so on: 8-bit elements are widened and
// narrowed within their 32-bit lane. (gcc 12 converts a vector of bytes to words one by one: less
// than half as fast.)
struct FloatQuad {
  FloatPair low;   // Bytes 0 and 1 of each word.
  FloatPair high;  // Bytes 2 and 3.
};
RUEDA_INLINE FloatQuad operator*(FloatQuad a, FloatQuad b) {
  return {a.low * b.low, a.high * b.high};
}
template <>
RUEDA_INLINE FloatQuad broadcast<FloatQuad>(float value) {
  return {broadcast<FloatPair>(value), broadcast<FloatPair>(value)};
}
template <Combine kCombine, typename Scalar>
RUEDA_INLINE FloatQuad combineTwo(FloatQuad left, FloatQuad right) {
  return {combineTwo<kCombine, Scalar>(left.low, right.low),
          combineTwo<kCombine, Scalar>(left.high, right.high)};
}
RUEDA_INLINE FloatQuad canonicalNan(FloatQuad quad) {
  return {canonicalNan(quad.low), canonicalNan(quad.high)};
}
// The lanes are out of order, so a part of a quad is kept whole: blocks have room for that.
template <>
RUEDA_INLINE FloatQuad loadPartial(const char* from, size_t) {
  return load<FloatQuad>(from);
}
template <>
RUEDA_INLINE void storePartial(char* to, FloatQuad quad, size_t) {
  store(to, quad);
}

// FloatQuads as they are.
struct QuadBlock {
  static constexpr int kBytes = sizeof(float);
  static constexpr int kLanes = 4 * kVectorBytes / kBytes;
  static constexpr int kUnroll = 1;
  using Scalar = float;
  using Vector = FloatQuad;
  using Stored = FloatQuad;
  static RUEDA_INLINE Vector widen(Stored stored) { return stored; }
  static RUEDA_INLINE Stored narrow(Vector vector) { return vector; }
};

// One sign bit, then exponent and mantissa. kInfinite: as IEEE has it, the largest exponent is kept
// for infinity and NaN; else it counts as the others do, there is no infinity, and only 0x7f and
// 0xff are NaN.
template <int kMantissaBits, bool kInfinite>
struct Float8 {
  static constexpr int kBytes = 1;
  static constexpr int kLanes = kVectorBytes;
  static constexpr int kUnroll = 1;
  using Scalar = float;
  using Vector = FloatQuad;
  using Stored = shm::Vector<uint8_t, kLanes>;
  using Accumulator = QuadBlock;
  using Integers = shm::Vector<int32_t, kVectorBytes / 4>;  // Compared faster than Words.

  static constexpr int kShift = 23 - kMantissaBits;  // From a mantissa to float32's.
  static constexpr int kBias = (1 << (6 - kMantissaBits)) - 1;
  static constexpr int kRebias = (127 - kBias) << 23;
  static constexpr int kNan = 0x7f;
  // What is too large becomes this: infinity, or the largest number there is.
  static constexpr int kLargest = kInfinite ? 0x80 - (1 << kMantissaBits) : kNan - 1;
  static constexpr int kFirstSpecial = kInfinite ? kLargest : kNan;
  // The step between denormals: 2^-9 or 2^-16.
  static constexpr float kStep = 1.0f / static_cast<float>(1 << (kBias - 1 + kMantissaBits));
  static constexpr float kRounder = 0x1p23f * kStep;  // Its last bit counts steps.

  static RUEDA_INLINE Vector widen(Stored stored) {
    const Words words = (Words)stored;
    return {{widenTop(words << 24), widenTop(words << 16)},
            {widenTop(words << 8), widenTop(words)}};
  }

  static RUEDA_INLINE Stored narrow(Vector vector) {
    return (Stored)(narrowed(vector.low.even) | (narrowed(vector.low.odd) << 8) |
                    (narrowed(vector.high.even) << 16) | (narrowed(vector.high.odd) << 24));
  }

  // Of the highest byte of each word.
  static RUEDA_INLINE Floats widenTop(Words words) {
    const Integers magnitude = (Integers)((words & 0x7f000000) >> (24 - kShift));
    const Integers normal = magnitude + kRebias;
    constexpr float kUnit = kStep / static_cast<float>(1 << kShift);
    const Integers denormal = (Integers)(__builtin_convertvector(magnitude, Floats) * kUnit);
    const Integers finite = magnitude < (1 << 23) ? denormal : normal;
    const Integers special = magnitude | 0x7f800000;  // Infinity or NaN.
    const Integers any = magnitude >= (kFirstSpecial << kShift) ? special : finite;
    return (Floats)((Words)any | (words & 0x80000000));
  }

  // To nearest, ties to even. REQUIRES: canonical NaNs, whose payload does not carry over.
  static RUEDA_INLINE Words narrowed(Floats floats) {
    const Words bits = (Words)floats;
    const Words magnitude = bits & 0x7fffffff;
    constexpr uint32_t kBelowHalf = (1u << (kShift - 1)) - 1;
    const Words carry = (magnitude >> kShift) & 1;
    const Integers normal = (Integers)((magnitude + (kBelowHalf - kRebias) + carry) >> kShift);
    const Integers denormal = (Integers)((Floats)magnitude + kRounder) - bitsOf(kRounder);
    const Integers size = (Integers)magnitude;
    const Integers finite = size < bitsOf(kStep * (1 << kMantissaBits)) ? denormal : normal;
    const Integers rounded = finite > kLargest ? Integers{} + kLargest : finite;
    const Words number = (Words)rounded | ((bits >> 24) & 0x80);
    return size > 0x7f800000 ? Words{} + kNan : number;
  }

  static RUEDA_INLINE int32_t bitsOf(float value) {
    int32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
  }
};

using Float8E4m3fn = Float8<3, false>;
using Float8E5m2 = Float8<2, true>;

}  // namespace
}  // namespace rueda::shm
