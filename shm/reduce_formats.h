// SPDX-License-Identifier: Apache-2.0
#pragma once

// Formats: how elements lie in memory and which accumulators they become. A format has
//   Vector, Scalar           accumulators, and one of them
//   Stored, kLanes, kBytes   a vector as it lies in memory, its elements, bytes of one
//   widen, narrow            between the two forms
//   kUnroll                  vectors of a stream in one step, where speed matters
//   Accumulator              the format of accumulators kept between two loops
// Compiled once per instruction set, see reduce_vector.h.

#include "shm/reduce_access.h"

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

// FloatPairs or FloatQuads as they are.
template <typename V>
struct Block {
  static constexpr int kBytes = sizeof(float);
  static constexpr int kLanes = sizeof(V) / kBytes;
  static constexpr int kUnroll = kIsPair<decltype(V::low)> ? 1 : 2;
  using Scalar = float;
  using Vector = V;
  using Stored = V;
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
  using Accumulator = Block<FloatPair>;
  static RUEDA_INLINE Vector widen(Stored stored) {
    const Words words = (Words)stored;
    return {(Floats)(words << 16), (Floats)(words & 0xffff0000)};
  }
  // To nearest, ties to even. REQUIRES: canonical NaNs, whose payload does not carry over.
  static RUEDA_INLINE Stored narrow(Vector vector) {
    return (Stored)((rounded(vector.low) >> 16) | (rounded(vector.high) & 0xffff0000));
  }
  static RUEDA_INLINE Words rounded(Floats floats) {
    const Words words = (Words)floats;
    return words + 0x7fff + ((words >> 16) & 1);
  }
};

}  // namespace
}  // namespace rueda::shm
