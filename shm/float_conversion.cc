// SPDX-License-Identifier: Apache-2.0
#include "shm/float_conversion.h"

#include <cstdint>
#include <cstring>

#include "shm/check.h"

namespace rueda::shm {
namespace {

float floatOf(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t bitsOf(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Exponent and mantissa move to float32's places; scaling by the difference of the biases, 2^112,
// is exact and makes denormals normal.
float fromHalf(uint16_t half) {
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t finite = bitsOf(floatOf(magnitude << 13) * 0x1p112f);
  const uint32_t infinite = (magnitude << 13) | 0x7f800000u;
  return floatOf((magnitude >= 0x7c00 ? infinite : finite) | (half & 0x8000u) << 16);
}

uint16_t toHalf(float value) {
  const uint32_t bits = bitsOf(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  uint32_t half = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // Below 2^-14 the step is 2^-24, as it is of float32 between 0.5 and 1: the addition rounds.
  if (magnitude < 0x38800000u) half = bitsOf(floatOf(magnitude) + 0.5f) - 0x3f000000u;
  if (magnitude >= 0x477ff000u) half = magnitude > 0x7f800000u ? 0x7e00 : 0x7c00;  // From 65520 on.
  return static_cast<uint16_t>(sign | half);
}

float fromBfloat(uint16_t upper) { return floatOf(uint32_t{upper} << 16); }

uint16_t toBfloat(float value) {
  const uint32_t bits = bitsOf(value);
  if (value != value) return 0x7fc0;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

template <typename Stored, typename T, typename Convert>
void widenWith(const Convert& convert, const char* from, size_t count, T* to) {
  for (size_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, from + i * sizeof stored, sizeof stored);
    to[i] = static_cast<T>(convert(stored));
  }
}

template <typename Stored, typename T, typename Convert>
void narrowWith(const Convert& convert, const T* from, size_t count, char* to) {
  for (size_t i = 0; i < count; ++i) {
    const Stored stored = convert(static_cast<float>(from[i]));
    std::memcpy(to + i * sizeof stored, &stored, sizeof stored);
  }
}

}  // namespace

template <typename T>
void widen(DType dtype, const char* from, size_t count, T* to) {
  if (dtype == DType::kFloat16) return widenWith<uint16_t>(fromHalf, from, count, to);
  if (dtype == DType::kBfloat16) return widenWith<uint16_t>(fromBfloat, from, count, to);
  RUEDA_CHECK(isFloating(dtype) && dtypeSize(dtype) == sizeof(T));
  if (count > 0) std::memcpy(to, from, count * sizeof(T));
}

template <typename T>
void narrow(DType dtype, const T* from, size_t count, char* to) {
  if (dtype == DType::kFloat16) return narrowWith<uint16_t>(toHalf, from, count, to);
  if (dtype == DType::kBfloat16) return narrowWith<uint16_t>(toBfloat, from, count, to);
  RUEDA_CHECK(isFloating(dtype) && dtypeSize(dtype) == sizeof(T));
  if (count > 0) std::memcpy(to, from, count * sizeof(T));
}

template void widen(DType, const char*, size_t, float*);
template void widen(DType, const char*, size_t, double*);
template void narrow(DType, const float*, size_t, char*);
template void narrow(DType, const double*, size_t, char*);

}  // namespace rueda::shm
