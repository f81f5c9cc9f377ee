// SPDX-License-Identifier: Apache-2.0
#pragma once

// One pass that sums K arrays of floats into all K of them, in place: the inner loop of the
// prototype and of the memory limit. Wide vectors by the compiler's vector extension, normal
// stores.

#include <cstddef>

namespace rueda::bench {

// 16 floats; no alignment beyond a float's, and allowed to alias one.
typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));

template <int kArrays>
inline void sumArrays(float* const* arrays, size_t count) {
  constexpr size_t kWidth = 16, kUnroll = 4;
  size_t i = 0;
  for (; i + kWidth * kUnroll <= count; i += kWidth * kUnroll) {
    Vector sum[kUnroll];
    for (size_t u = 0; u < kUnroll; ++u) {
      sum[u] = *reinterpret_cast<const Vector*>(arrays[0] + i + u * kWidth);
    }
    for (int k = 1; k < kArrays; ++k) {
      for (size_t u = 0; u < kUnroll; ++u) {
        sum[u] += *reinterpret_cast<const Vector*>(arrays[k] + i + u * kWidth);
      }
    }
    for (int k = 0; k < kArrays; ++k) {
      for (size_t u = 0; u < kUnroll; ++u) {
        *reinterpret_cast<Vector*>(arrays[k] + i + u * kWidth) = sum[u];
      }
    }
  }
  for (; i < count; ++i) {
    float sum = arrays[0][i];
    for (int k = 1; k < kArrays; ++k) sum += arrays[k][i];
    for (int k = 0; k < kArrays; ++k) arrays[k][i] = sum;
  }
}

// False when no loop for so many arrays is compiled in.
inline bool sumInPlace(int arrayCount, float* const* arrays, size_t count) {
  switch (arrayCount) {
    case 1:
      return true;
    case 2:
      sumArrays<2>(arrays, count);
      return true;
    case 3:
      sumArrays<3>(arrays, count);
      return true;
    case 4:
      sumArrays<4>(arrays, count);
      return true;
    case 8:
      sumArrays<8>(arrays, count);
      return true;
    default:
      return false;
  }
}

}  // namespace rueda::bench
