// SPDX-License-Identifier: Apache-2.0
#pragma once

// The floats of 8 bits and IEEE's of 16 as formats, see reduce_formats.h: they become float32 by
// integer arithmetic, the same on every instruction set, or by instructions that give the same
// bits. Compiled once per instruction set, see reduce_vector.h.

#include <type_traits>

#include "shm/reduce_combine.h"
#include "shm/reduce_formats.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// One sign bit, then exponent and mantissa; `Bits` is as long. kQuietNan is what a NaN is written
// as. kInfinite: as IEEE has it, the largest exponent is kept for infinity and NaN; else it counts
// as the others do, there is no infinity, and only kQuietNan, with either sign, is NaN.
template <typename Bits, int kMantissaBits, int kQuietNan, bool kInfinite>
struct SmallFloat {
  static constexpr int kBytes = sizeof(Bits);
  static constexpr int kLanes = kVectorBytes / kBytes;
  static constexpr int kUnroll = 1;  // More would only be more code.
  using Scalar = float;
  using Vector = std::conditional_t<kBytes == 1, FloatQuad, FloatPair>;
  using Stored = shm::Vector<Bits, kLanes>;
  using Accumulator = Block<Vector>;
  using Integers = shm::Vector<int32_t, kVectorBytes / 4>;  // Compared faster than Words.

  static constexpr int kBits = 8 * kBytes;
  static constexpr int kAbove = 32 - kBits;  // Bits of a word that are not the number's.
  static constexpr uint32_t kSign = 1u << (kBits - 1);
  static constexpr int kShift = 23 - kMantissaBits;  // From a mantissa to float32's.
  static constexpr int kBias = (1 << (kBits - 2 - kMantissaBits)) - 1;
  static constexpr int kRebias = (127 - kBias) << 23;
  // What is too large becomes this: infinity, or the largest number there is.
  static constexpr int kLargest =
      kInfinite ? static_cast<int>(kSign) - (1 << kMantissaBits) : kQuietNan - 1;
  static constexpr int kFirstSpecial = kInfinite ? kLargest : kQuietNan;
  // The step between denormals: 2^-9, 2^-16 or 2^-24.
  static constexpr float kStep = 1.0f / static_cast<float>(1 << (kBias - 1 + kMantissaBits));
  static constexpr float kRounder = 0x1p23f * kStep;  // Its last bit counts steps.

  static RUEDA_INLINE Vector widen(Stored stored) {
    const Words words = (Words)stored;
    if constexpr (kBytes == 1) {
      return {{widenTop(words << 24), widenTop(words << 16)},
              {widenTop(words << 8), widenTop(words)}};
    } else {
      return {widenTop(words << 16), widenTop(words)};
    }
  }

  static RUEDA_INLINE Stored narrow(Vector vector) {
    if constexpr (kBytes == 1) {
      return (Stored)(narrowed(vector.low.low) | (narrowed(vector.low.high) << 8) |
                      (narrowed(vector.high.low) << 16) | (narrowed(vector.high.high) << 24));
    } else {
      return (Stored)(narrowed(vector.low) | (narrowed(vector.high) << 16));
    }
  }

  // Of the highest kBits of each word.
  static RUEDA_INLINE Floats widenTop(Words words) {
    constexpr uint32_t kMagnitude = (kSign - 1) << kAbove;
    const Integers magnitude = (Integers)((words & kMagnitude) >> (kAbove - kShift));
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
    const Words number = (Words)rounded | ((bits >> kAbove) & kSign);
    return size > 0x7f800000 ? Words{} + kQuietNan : number;
  }

  static RUEDA_INLINE int32_t bitsOf(float value) {
    int32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
  }
};

using Float8E4m3fn = SmallFloat<uint8_t, 3, 0x7f, false>;
using Float8E5m2 = SmallFloat<uint8_t, 2, 0x7f, true>;

#if defined(__F16C__) || defined(__AVX512F__)
// By instructions, which give the bits of the integer form for every input that is not NaN; NaNs
// are canonical before they are narrowed.
struct Float16 {
  static constexpr int kBytes = 2;
  static constexpr int kLanes = kVectorBytes / 4;
  static constexpr int kUnroll = 4;
  using Scalar = float;
  using Vector = Floats;
  using Stored = shm::Vector<uint16_t, kLanes>;
  using Accumulator = Native<float>;
#if defined(__AVX512F__)
  // The unmasked forms make gcc warn of an uninitialised value inside its header; the code is the
  // same.
  static constexpr uint16_t kAll = 0xffff;
  static RUEDA_INLINE Vector widen(Stored stored) {
    return (Vector)_mm512_maskz_cvtph_ps(kAll, (__m256i)stored);
  }
  static RUEDA_INLINE Stored narrow(Vector vector) {
    return (Stored)_mm512_maskz_cvtps_ph(kAll, (__m512)vector, _MM_FROUND_TO_NEAREST_INT);
  }
#else
  static RUEDA_INLINE Vector widen(Stored stored) {
    return (Vector)_mm256_cvtph_ps((__m128i)stored);
  }
  static RUEDA_INLINE Stored narrow(Vector vector) {
    return (Stored)_mm256_cvtps_ph((__m256)vector, _MM_FROUND_TO_NEAREST_INT);
  }
#endif
};
#else
using Float16 = SmallFloat<uint16_t, 10, 0x7e00, true>;
#endif

}  // namespace
}  // namespace rueda::shm
