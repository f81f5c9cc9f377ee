// SPDX-License-Identifier: Apache-2.0
#include "shm/float_conversion.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "shm/reduce_kernels.h"

namespace {

using rueda::shm::DType;
using rueda::shm::ReduceOp;
using rueda::shm::ReduceSpec;

// The same conversion by the kernels of reductions: a sum with -0 keeps every value, a scale of 1.0
// would be left out, so it is doubled and halved.
uint16_t narrowedByKernel(DType dtype, float value) {
  uint16_t whole = 0;
  rueda::shm::narrow(dtype, &value, 1, reinterpret_cast<char*>(&whole));
  uint16_t result = 0;
  const uint16_t minusZero = 0x8000;
  const void* inputs[] = {&whole, &minusZero};
  void* output = &result;
  rueda::shm::reduce({dtype, ReduceOp::kSum, 2}, inputs, 2, &output, 1, 1);
  return result;
}

}  // namespace

TEST_CASE("every 16-bit float survives the way to float32 and back") {
  const DType dtype = GENERATE(DType::kFloat16, DType::kBfloat16);
  int wrong = 0;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    float wide = 0;
    uint16_t back = 0;
    rueda::shm::widen(dtype, reinterpret_cast<const char*>(&half), 1, &wide);
    rueda::shm::narrow(dtype, &wide, 1, reinterpret_cast<char*>(&back));
    const bool isRight = std::isnan(wide)
                             ? back == narrowedByKernel(dtype, wide) ||
                                   (back & 0x7fff) == (dtype == DType::kFloat16 ? 0x7e00 : 0x7fc0)
                             : back == half;
    wrong += isRight ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE(
    "float32 is rounded to the nearest 16-bit float, ties to even, and overflows to infinity") {
  struct Variant {
    DType dtype;
    float value;
    uint16_t bits;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<Variant> variants = {
      {DType::kFloat16, 1.0f, 0x3c00},       {DType::kFloat16, 2049.0f, 0x6800},
      {DType::kFloat16, 2051.0f, 0x6802},    {DType::kFloat16, 65519.0f, 0x7bff},
      {DType::kFloat16, 65520.0f, 0x7c00},   {DType::kFloat16, -infinity, 0xfc00},
      {DType::kFloat16, 0x1p-24f, 0x0001},   {DType::kFloat16, 0x1p-25f, 0x0000},
      {DType::kFloat16, 0x1.8p-25f, 0x0001}, {DType::kBfloat16, 1.0f, 0x3f80},
      {DType::kBfloat16, 0x1.01p0f, 0x3f80}, {DType::kBfloat16, 0x1.03p0f, 0x3f82},
      {DType::kBfloat16, -infinity, 0xff80}, {DType::kBfloat16, 3.4e38f, 0x7f80},
  };
  for (const Variant& variant : variants) {
    uint16_t bits = 0;
    rueda::shm::narrow(variant.dtype, &variant.value, 1, reinterpret_cast<char*>(&bits));
    CAPTURE(variant.value);
    CHECK(bits == variant.bits);
  }
}
