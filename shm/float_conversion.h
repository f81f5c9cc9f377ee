// SPDX-License-Identifier: Apache-2.0
#pragma once

// Real floats of 16 bits and more to and from float32 and float64, a range at a time. Pure; any
// thread.

#include <cstddef>

#include "shm/dtype.h"

namespace rueda::shm {

// Reads `count` elements of `dtype`. REQUIRES: dtype is kFloat16, kBfloat16 or kFloat32 (T =
// float), kFloat64 (T = double).
template <typename T>
void widen(DType dtype, const char* from, size_t count, T* to);
// Writes `count` elements of `dtype`, rounded to nearest, ties to even; NaNs stay NaNs.
template <typename T>
void narrow(DType dtype, const T* from, size_t count, char* to);

}  // namespace rueda::shm
