// SPDX-License-Identifier: Apache-2.0
#pragma once

// Random arrays of every data type for tests of the sums, with what is rare in life: zeros of both
// signs, denormals, infinities, NaNs of any payload. Pure; any thread.

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "shm/dtype.h"
#include "tests/kit/small_float.h"

namespace rueda::kit {

using shm::DType;
using Random = std::mt19937_64;

// Ordinary values, so that sums round, with a few zeros, denormals, infinities and NaNs.
inline double randomFloat(Random& random) {
  const double value = std::uniform_real_distribution<double>(-8, 8)(random);
  switch (random() % 256) {
    case 0:
      return std::copysign(0.0, value);
    case 1:
      return value * 1e-6;  // Denormal in float16.
    case 2:
      return value * 1e-39;  // Denormal in float32 and bfloat16.
    case 3:
      return value * 1e4;  // Sums overflow float16.
    case 4:
      return value * 4e37;  // Sums overflow float32.
    case 5:
      return std::copysign(INFINITY, value);
    case 6:
      return NAN;
    default:
      return value;
  }
}

// NaNs get a sign and a payload, which results must not depend on.
template <typename Bits, typename T>
void putFloat(char* to, T value, Bits quietNan, Random& random) {
  Bits bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (value != value) {
    bits = quietNan | (random() & 7) | (random() % 2 != 0 ? Bits{1} << (sizeof(Bits) * 8 - 1) : 0);
  }
  std::memcpy(to, &bits, sizeof(bits));
}

inline std::vector<char> randomArray(DType dtype, size_t count, Random& random) {
  if (dtype == DType::kComplex64) return randomArray(DType::kFloat32, 2 * count, random);
  if (dtype == DType::kComplex128) return randomArray(DType::kFloat64, 2 * count, random);
  const size_t bytes = shm::dtypeSize(dtype);
  std::vector<char> array(count * bytes);
  for (size_t i = 0; i < count; ++i) {
    char* to = array.data() + i * bytes;
    const double value = shm::isFloating(dtype) ? randomFloat(random) : 0;
    const float narrow = static_cast<float>(value);
    uint64_t bits = random();
    if (dtype == DType::kFloat16) bits = Half::encode(narrow) | (std::isnan(value) ? bits & 7 : 0);
    if (dtype == DType::kBfloat16)
      bits = Brain::encode(narrow) | (std::isnan(value) ? bits & 7 : 0);
    // Some are left as they are, for NaNs of every payload.
    if (dtype == DType::kFloat8E4m3fn && bits % 256 != 0) bits = E4m3fn::encode(narrow);
    if (dtype == DType::kFloat8E5m2 && bits % 256 != 0) bits = E5m2::encode(narrow);
    if (dtype == DType::kBool) bits = bits % 4 == 0 ? bits >> 8 : bits % 2;
    std::memcpy(to, &bits, bytes);
    if (dtype == DType::kFloat32) putFloat(to, narrow, uint32_t{0x7fc00000}, random);
    if (dtype == DType::kFloat64) putFloat(to, value, uint64_t{0x7ff8} << 48, random);
  }
  return array;
}

using Inputs = std::vector<std::vector<char>>;

inline Inputs randomInputs(DType dtype, int number, size_t count, Random& random) {
  Inputs inputs;
  for (int i = 0; i < number; ++i) inputs.push_back(randomArray(dtype, count, random));
  return inputs;
}

inline std::vector<const void*> addresses(const Inputs& inputs, int number) {
  std::vector<const void*> result;
  for (int i = 0; i < number; ++i) result.push_back(inputs[i].data());
  return result;
}

}  // namespace rueda::kit
