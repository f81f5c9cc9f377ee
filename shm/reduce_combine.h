// SPDX-License-Identifier: Apache-2.0
#pragma once

// How two vectors become one, lane by lane. Compiled once per instruction set, see reduce_vector.h.

#include "shm/reduce_formats.h"
#include "shm/reduce_kernel_set.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

template <Combine kCombine, typename Scalar, typename V>
RUEDA_INLINE V combineTwo(V left, V right) {
  constexpr bool kFloating = Scalar(0.5) != 0;
  if constexpr (kCombine == Combine::kAdd) return left + right;
  if constexpr (kCombine == Combine::kMultiply) return left * right;
  // A NaN on either side wins. Of equal values (two zeros) the left one stays.
  if constexpr (kCombine == Combine::kMin && kFloating) {
    return ((right < left) | (right != right)) ? right : left;
  }
  if constexpr (kCombine == Combine::kMax && kFloating) {
    return ((right > left) | (right != right)) ? right : left;
  }
  if constexpr (kCombine == Combine::kMin && !kFloating) return right < left ? right : left;
  if constexpr (kCombine == Combine::kMax && !kFloating) return right > left ? right : left;
}
template <Combine kCombine, typename Scalar, typename Half>
RUEDA_INLINE Pair<Half> combineTwo(Pair<Half> left, Pair<Half> right) {
  return {combineTwo<kCombine, Scalar>(left.low, right.low),
          combineTwo<kCombine, Scalar>(left.high, right.high)};
}

// Every NaN becomes the positive quiet one. Which operand's payload an addition hands on is the
// compiler's choice, so without this equal inputs could give unequal bits.
template <typename V>
RUEDA_INLINE V canonicalNan(V vector) {
  using T = decltype(vector[0] + vector[0]);
  constexpr T kNan = static_cast<T>(__builtin_nan(""));
  return vector == vector ? vector : broadcast<V>(kNan);
}
template <typename Half>
RUEDA_INLINE Pair<Half> canonicalNan(Pair<Half> pair) {
  return {canonicalNan(pair.low), canonicalNan(pair.high)};
}

}  // namespace
}  // namespace rueda::shm
