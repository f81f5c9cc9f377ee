// SPDX-License-Identifier: Apache-2.0
#pragma once

// Formats: how elements lie in memory and which vector of accumulators they become. A format has
//   Vector, kLanes      accumulators, and how many fit
//   kBytes              of one element in memory
//   Stored              the vector as it lies in memory
//   widen, narrow       between the two
//   finish              what a final result needs once (floats: canonical NaN)
// Compiled once per instruction set, see reduce_vector.h.

#include "shm/reduce_vector.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// The element type accumulates itself.
template <typename T>
struct Native {
  static constexpr int kBytes = sizeof(T);
  static constexpr int kLanes = kVectorBytes / kBytes;
  using Scalar = T;
  using Vector = shm::Vector<T, kLanes>;
  using Stored = Vector;
  static RUEDA_INLINE Vector widen(Stored stored) { return stored; }
  static RUEDA_INLINE Stored narrow(Vector vector) { return vector; }
  static RUEDA_INLINE Vector finish(Vector vector) {
    if constexpr (T(0.5) != 0) return canonicalNan(vector);
    return vector;
  }
};

// One byte; any value but 0 counts as true and true is written as 1.
struct Boolean : Native<uint8_t> {
  static RUEDA_INLINE Vector widen(Stored stored) { return (Vector)(stored != 0) & 1; }
};

// What 16-bit floats have in common.
struct HalfWidth {
  static constexpr int kBytes = 2;
  static constexpr int kLanes = kVectorBytes / 4;
  using Scalar = float;
  using Vector = shm::Vector<float, kLanes>;
  using Bits = shm::Vector<uint32_t, kLanes>;
  using Stored = shm::Vector<uint16_t, kLanes>;
  static RUEDA_INLINE Vector finish(Vector vector) { return canonicalNan(vector); }
  static RUEDA_INLINE Bits bitsOf(Stored stored) { return __builtin_convertvector(stored, Bits); }
  // REQUIRES: every lane below 2^16.
  static RUEDA_INLINE Stored lowHalves(Bits bits) { return __builtin_convertvector(bits, Stored); }
};

// The upper half of a float32. AVX512-BF16's instructions would flush denormals: not used.
struct Bfloat16 : HalfWidth {
  static RUEDA_INLINE Vector widen(Stored stored) { return (Vector)(bitsOf(stored) << 16); }
  // To nearest, ties to even. REQUIRES: finished, so that no NaN's payload carries over.
  static RUEDA_INLINE Stored narrow(Vector vector) {
    const Bits bits = (Bits)vector;
    return lowHalves((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

// IEEE binary16. The instructions and the integer form below give the same bits for every input
// that is not NaN; NaN becomes canonical in finish.
struct Float16 : HalfWidth {
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
    const Bits bits = bitsOf(stored);
    const Bits magnitude = bits & 0x7fff;
    const Bits finite = (Bits)((Vector)(magnitude << 13) * 0x1p112f);
    const Bits infinite = (magnitude << 13) | 0x7f800000;  // Infinity or NaN.
    return (Vector)((magnitude >= 0x7c00 ? infinite : finite) | ((bits & 0x8000) << 16));
  }
  static RUEDA_INLINE Stored narrow(Vector vector) {
    const Bits bits = (Bits)vector;
    const Bits magnitude = bits & 0x7fffffff;
    // Rebiases the exponent and rounds to nearest even at bit 13.
    const Bits normal = (magnitude - (112u << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
    // Below 2^-14 the step is 2^-24, which is also the step of float32 between 0.5 and 1: the
    // addition rounds.
    const Bits denormal = (Bits)((Vector)magnitude + 0.5f) - 0x3f000000;
    const Bits tooLarge = magnitude > 0x7f800000 ? Bits{} + 0x7e00 : Bits{} + 0x7c00;
    const Bits finite = magnitude < 0x38800000 ? denormal : normal;    // 2^-14.
    const Bits rounded = magnitude >= 0x477ff000 ? tooLarge : finite;  // 65520 and up.
    return lowHalves(rounded | ((bits >> 16) & 0x8000));
  }
#endif
};

}  // namespace
}  // namespace rueda::shm
