// SPDX-License-Identifier: Apache-2.0
#pragma once

// Formats: how elements lie in memory and which accumulators they become. A format has
//   Vector, Scalar           accumulators, and one of them
//   Stored, kLanes, kBytes   a vector as it lies in memory, its elements, bytes of one
//   widen, narrow            between the two forms
//   kUnroll                  vectors of a stream in one step, where speed matters
//   Accumulator              the format of accumulators kept between two loops
// Compiled once per instruction set, see reduce_vector.h.

#include "shm/reduce_vector.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// The element type accumulates itself.
template <typename T>
struct Native {
  static constexpr int kBytes = sizeof(T);
  static constexpr int kLanes = kVectorBytes / kBytes;
  static constexpr int kUnroll = 4;  // Four cache lines at 64 bytes.
  using Scalar = T;
  using Vector = shm::Vector<T, kLanes>;
  using Stored = Vector;
  using Accumulator = Native;
  static RUEDA_INLINE Vector widen(Stored stored) { return stored; }
  static RUEDA_INLINE Stored narrow(Vector vector) { return vector; }
};

// One byte; any value but 0 counts as true and true is written as 1.
struct Boolean : Native<uint8_t> {
  using Accumulator = Boolean;
  static RUEDA_INLINE Vector widen(Stored stored) { return (Vector)(stored != 0) & 1; }
};

template <>
RUEDA_INLINE FloatPair broadcast<FloatPair>(float value) {
  return {broadcast<Floats>(value), broadcast<Floats>(value)};
}
// The lanes are out of order, so a part of a pair is kept whole: blocks have room for that.
template <>
RUEDA_INLINE FloatPair loadPartial(const char* from, size_t) {
  return load<FloatPair>(from);
}
template <>
RUEDA_INLINE void storePartial(char* to, FloatPair pair, size_t) {
  store(to, pair);
}

// FloatPairs as they are.
struct PairBlock {
  static constexpr int kBytes = sizeof(float);
  static constexpr int kLanes = 2 * kVectorBytes / kBytes;
  static constexpr int kUnroll = 2;
  using Scalar = float;
  using Vector = FloatPair;
  using Stored = FloatPair;
  static RUEDA_INLINE Vector widen(Stored stored) { return stored; }
  static RUEDA_INLINE Stored narrow(Vector vector) { return vector; }
};

// The upper half of a float32. AVX512-BF16's instructions would flush denormals: not used.
struct Bfloat16 {
  static constexpr int kBytes = 2;
  static constexpr int kLanes = kVectorBytes / kBytes;
  static constexpr int kUnroll = 2;
  using Scalar = float;
  using Vector = FloatPair;
  using Stored = shm::Vector<uint16_t, kLanes>;
  using Accumulator = PairBlock;
  static RUEDA_INLINE Vector widen(Stored stored) {
    const Words words = (Words)stored;
    return {(Floats)(words << 16), (Floats)(words & 0xffff0000)};
  }
  // To nearest, ties to even. REQUIRES: canonical NaNs, whose payload does not carry over.
  static RUEDA_INLINE Stored narrow(Vector vector) {
    return (Stored)((rounded(vector.even) >> 16) | (rounded(vector.odd) & 0xffff0000));
  }
  static RUEDA_INLINE Words rounded(Floats floats) {
    const Words words = (Words)floats;
    return words + 0x7fff + ((words >> 16) & 1);
  }
};

// IEEE binary16. The instructions and the integer form below give the same bits for every input
// that is not NaN; NaNs are canonical before they are narrowed.
struct Float16 {
  static constexpr int kBytes = 2;
  static constexpr int kLanes = kVectorBytes / 4;
#if defined(__F16C__) || defined(__AVX512F__)
  static constexpr int kUnroll = 4;
#else
  static constexpr int kUnroll = 1;  // More would only be more code.
#endif
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
#elif defined(__F16C__)
  static RUEDA_INLINE Vector widen(Stored stored) {
    return (Vector)_mm256_cvtph_ps((__m128i)stored);
  }
  static RUEDA_INLINE Stored narrow(Vector vector) {
    return (Stored)_mm256_cvtps_ph((__m256)vector, _MM_FROUND_TO_NEAREST_INT);
  }
#else
  // Moves exponent and mantissa to float32's places and scales by the difference of the biases,
  // 2^112, which is exact and makes denormals normal.
  static RUEDA_INLINE Vector widen(Stored stored) {
    const Words bits = __builtin_convertvector(stored, Words);
    const Words magnitude = bits & 0x7fff;
    const Words finite = (Words)((Vector)(magnitude << 13) * 0x1p112f);
    const Words infinite = (magnitude << 13) | 0x7f800000;  // Infinity or NaN.
    return (Vector)((magnitude >= 0x7c00 ? infinite : finite) | ((bits & 0x8000) << 16));
  }
  static RUEDA_INLINE Stored narrow(Vector vector) {
    const Words bits = (Words)vector;
    const Words magnitude = bits & 0x7fffffff;
    // Rebiases the exponent and rounds to nearest even at bit 13.
    const Words normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Below 2^-14 the step is 2^-24, which is also the step of float32 between 0.5 and 1: the
    // addition rounds.
    const Words denormal = (Words)((Vector)magnitude + 0.5f) - 0x3f000000;
    const Words tooLarge = magnitude > 0x7f800000 ? Words{} + 0x7e00 : Words{} + 0x7c00;
    const Words finite = magnitude < 0x38800000 ? denormal : normal;    // 2^-14.
    const Words rounded = magnitude >= 0x477ff000 ? tooLarge : finite;  // 65520 and up.
    return __builtin_convertvector(rounded | ((bits >> 16) & 0x8000), Stored);
  }
#endif
};

}  // namespace
}  // namespace rueda::shm
