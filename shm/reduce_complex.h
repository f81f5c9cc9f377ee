// SPDX-License-Identifier: Apache-2.0
#pragma once

// Complex numbers as a format, see reduce_formats.h, for their products only: sums are those of
// twice as many real numbers (see reduce in reduce_kernels.cc). Compiled once per instruction set,
// see reduce_vector.h.

#include "shm/reduce_combine.h"
#include "shm/reduce_formats.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// Real and imaginary parts in turn, as they lie in memory.
template <typename T>
struct ComplexParts {
  using Real = Vector<T, kVectorBytes / sizeof(T)>;
  Real parts;
};

// By one real factor each part, which broadcast() has put into both.
template <typename T>
RUEDA_INLINE ComplexParts<T> operator*(ComplexParts<T> a, ComplexParts<T> b) {
  return {a.parts * b.parts};
}

template <>
RUEDA_INLINE ComplexParts<float> broadcast<ComplexParts<float>>(float value) {
  return {broadcast<ComplexParts<float>::Real>(value)};
}
template <>
RUEDA_INLINE ComplexParts<double> broadcast<ComplexParts<double>>(double value) {
  return {broadcast<ComplexParts<double>::Real>(value)};
}

template <typename T>
RUEDA_INLINE ComplexParts<T> canonicalNan(ComplexParts<T> numbers) {
  return {canonicalNan(numbers.parts)};
}

// (a + bi)(c + di) = (ac - bd) + (ad + bc)i, each operation rounded, without C's recovery of
// infinities: what torch and numpy compute.
template <typename V, int... kLane>
RUEDA_INLINE V multiplyParts(V left, V right, std::integer_sequence<int, kLane...>) {
  constexpr V kSigns = {(kLane % 2 == 0 ? -1 : 1)...};
  const V real = __builtin_shufflevector(left, left, (kLane & ~1)...);
  const V imaginary = __builtin_shufflevector(left, left, (kLane | 1)...);
  const V swapped = __builtin_shufflevector(right, right, (kLane ^ 1)...);
  return real * right + imaginary * swapped * kSigns;
}
template <Combine kCombine, typename Scalar, typename T>
RUEDA_INLINE ComplexParts<T> combineTwo(ComplexParts<T> left, ComplexParts<T> right) {
  static_assert(kCombine == Combine::kMultiply, "sums are those of the parts");
  constexpr int kParts = kVectorBytes / sizeof(T);
  return {multiplyParts(left.parts, right.parts, std::make_integer_sequence<int, kParts>())};
}

template <typename T>
struct Complex {
  static constexpr int kBytes = 2 * sizeof(T);
  static constexpr int kLanes = kVectorBytes / kBytes;
  static constexpr int kUnroll = 1;
  using Scalar = T;
  using Vector = ComplexParts<T>;
  using Stored = typename Vector::Real;
  using Accumulator = Complex;
  static RUEDA_INLINE Vector widen(Stored stored) { return {stored}; }
  static RUEDA_INLINE Stored narrow(Vector vector) { return vector.parts; }
};

}  // namespace
}  // namespace rueda::shm
