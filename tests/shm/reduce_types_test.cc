// SPDX-License-Identifier: Apache-2.0

// What is each data type's own in a reduction: rounding, wrapping, overflow, NaN.
#include <catch2/catch.hpp>
#include <complex>
#include <cstring>
#include <vector>

#include "shm/reduce_kernels.h"
#include "tests/kit/reduce_check.h"
#include "tests/kit/reference_reduce.h"
#include "tests/kit/tensors.h"

namespace rueda::shm {
namespace {

using kit::checkReduce;
using kit::isas;
using kit::reduceOne;
using kit::referenceReduce;

TEST_CASE("integer averages are exact quotients, truncated towards zero") {
  ReduceSpec spec{DType::kInt32, ReduceOp::kAverage, 2};
  CHECK(reduceOne<int32_t>(spec, {3, 4}) == 3);
  CHECK(reduceOne<int32_t>(spec, {-3, -4}) == -3);
  CHECK(reduceOne<int32_t>(spec, {INT32_MIN, 0}) == INT32_MIN / 2);
  for (spec.ranks = 1; spec.ranks < 3000; ++spec.ranks) {  // 49 * (1.0 / 49) is below 1.
    CHECK(reduceOne<int32_t>(spec, {spec.ranks}) == 1);
    CHECK(reduceOne<int32_t>(spec, {-spec.ranks}) == -1);
    CHECK(reduceOne<int32_t>(spec, {spec.ranks - 1}) == 0);
    const int largest = INT32_MAX / spec.ranks * spec.ranks;
    CHECK(reduceOne<int32_t>(spec, {largest}) == largest / spec.ranks);
    CHECK(reduceOne<int32_t>(spec, {largest - 1}) == (largest - 1) / spec.ranks);
  }
  spec = {DType::kInt64, ReduceOp::kAverage, 3};
  const int64_t beyondDouble = (int64_t{1} << 60) + 1;
  CHECK(reduceOne<int64_t>(spec, {beyondDouble * 3, 0, 0}) == beyondDouble);
  CHECK(reduceOne<int64_t>(spec, {INT64_MIN, 0, 0}) == INT64_MIN / 3);
  spec.dtype = DType::kUint64;
  CHECK(reduceOne<uint64_t>(spec, {UINT64_MAX, 0, 0}) == UINT64_MAX / 3);
  spec.dtype = DType::kUint32;
  CHECK(reduceOne<uint32_t>(spec, {UINT32_MAX, 0, 0}) == UINT32_MAX / 3);
}

TEST_CASE("integer sums wrap and scaled integers saturate") {
  CHECK(reduceOne<int8_t>({DType::kInt8}, {100, 100}) == -56);
  CHECK(reduceOne<uint8_t>({DType::kUint8}, {200, 100}) == 44);
  CHECK(reduceOne<int64_t>({DType::kInt64}, {INT64_MAX, 1}) == INT64_MIN);
  CHECK(reduceOne<int16_t>({DType::kInt16, ReduceOp::kProduct}, {300, 300}) == 24464);
  CHECK(reduceOne<int32_t>({DType::kInt32, ReduceOp::kSum, 1, 1, 0.5}, {-7}) == -3);
  CHECK(reduceOne<int8_t>({DType::kInt8, ReduceOp::kSum, 1, 1, 1e3}, {-7}) == -128);
  CHECK(reduceOne<uint16_t>({DType::kUint16, ReduceOp::kSum, 1, -1, 1}, {7, 0}) == 0);
  CHECK(reduceOne<int64_t>({DType::kInt64, ReduceOp::kSum, 1, 1, 2}, {INT64_MAX}) == INT64_MAX);
  CHECK(reduceOne<int64_t>({DType::kInt64, ReduceOp::kSum, 1, 1, 2}, {INT64_MIN}) == INT64_MIN);
  CHECK(reduceOne<int64_t>({DType::kInt64, ReduceOp::kSum, 1, 1, NAN}, {5}) == 0);
  CHECK(reduceOne<uint32_t>({DType::kUint32}, {UINT32_MAX, 2}) == 1);
  CHECK(reduceOne<uint32_t>({DType::kUint32, ReduceOp::kSum, 1, 1, 0.5}, {UINT32_MAX}) ==
        INT32_MAX);
  CHECK(reduceOne<uint32_t>({DType::kUint32, ReduceOp::kSum, 1, 1, 2}, {1u << 31}) == UINT32_MAX);
  CHECK(reduceOne<uint32_t>({DType::kUint32, ReduceOp::kMax}, {1u << 31, 1}) == 1u << 31);
  CHECK(reduceOne<uint64_t>({DType::kUint64, ReduceOp::kSum, 1, 1, 2}, {UINT64_MAX}) == UINT64_MAX);
  CHECK(reduceOne<uint64_t>({DType::kUint64, ReduceOp::kSum, 1, 1, -1}, {5}) == 0);
  CHECK(reduceOne<uint64_t>({DType::kUint64, ReduceOp::kMin}, {UINT64_MAX, 1}) == 1);
}

TEST_CASE("bool is 'or' for sum, average and max, 'and' for product and min") {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
    CHECK(reduceOne<uint8_t>({DType::kBool, op, 3}, {0, 128, 0}) == 1);
    CHECK(reduceOne<uint8_t>({DType::kBool, op, 2}, {0, 0}) == 0);
  }
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin}) {
    CHECK(reduceOne<uint8_t>({DType::kBool, op, 3}, {1, 2, 4}) == 1);
    CHECK(reduceOne<uint8_t>({DType::kBool, op, 2}, {1, 0}) == 0);
  }
  CHECK(reduceOne<uint8_t>({DType::kBool}, {77}) == 1);
}

TEST_CASE("every float16 and bfloat16 is read and rounded as the reference does") {
  const DType dtype = GENERATE(DType::kFloat16, DType::kBfloat16);
  std::vector<char> all(65536 * 2), shuffled(65536 * 2);
  for (unsigned i = 0; i < 65536; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i), other = static_cast<uint16_t>(i * 40503 + 7);
    std::memcpy(all.data() + 2 * i, &bits, 2);
    std::memcpy(shuffled.data() + 2 * i, &other, 2);
  }
  for (const ReduceOp op : kit::kReduceOps) {
    const ReduceSpec spec{dtype, op, 3};  // Thirds need rounding.
    const auto expected = referenceReduce(spec, {all.data(), shuffled.data()}, 65536);
    for (const Isa isa : isas()) {
      CHECK(checkReduce(spec, {all, shuffled}, 2, 65536, isa, expected) == "");
    }
  }
}

TEST_CASE("every pair of 8-bit floats is read and rounded as the reference does") {
  const DType dtype = GENERATE(DType::kFloat8E4m3fn, DType::kFloat8E5m2);
  std::vector<char> left(65536), right(65536);
  for (unsigned i = 0; i < 65536; ++i) {
    left[i] = static_cast<char>(i);
    right[i] = static_cast<char>(i >> 8);
  }
  for (const ReduceOp op : kit::kReduceOps) {
    const ReduceSpec spec{dtype, op, 3};
    const auto expected = referenceReduce(spec, {left.data(), right.data()}, 65536);
    for (const Isa isa : isas()) {
      CHECK(checkReduce(spec, {left, right}, 2, 65536, isa, expected) == "");
    }
  }
}

// `value` as that type; `one` are the bits of 1.
uint8_t roundedTo(DType dtype, uint8_t one, double value) {
  return reduceOne<uint8_t>({dtype, ReduceOp::kSum, 1, 1, value}, {one});
}

TEST_CASE("8-bit floats overflow as those of torch do") {
  const DType e4m3 = DType::kFloat8E4m3fn;
  const uint8_t one = 0x38;
  CHECK(roundedTo(e4m3, one, 448) == 0x7e);
  CHECK(roundedTo(e4m3, one, 465) == 0x7e);
  CHECK(roundedTo(e4m3, one, 1e9) == 0x7e);
  CHECK(roundedTo(e4m3, one, INFINITY) == 0x7e);
  CHECK(roundedTo(e4m3, one, -500) == 0xfe);
  CHECK(roundedTo(e4m3, one, NAN) == 0x7f);
  CHECK(roundedTo(e4m3, one, 0x1p-9) == 1);
  CHECK(roundedTo(e4m3, one, 0x1p-10) == 0);
  CHECK(roundedTo(e4m3, one, -0x1.8p-10) == 0x81);
  const DType e5m2 = DType::kFloat8E5m2;
  const uint8_t oneToo = 0x3c;
  CHECK(roundedTo(e5m2, oneToo, 57344) == 0x7b);
  CHECK(roundedTo(e5m2, oneToo, 61439) == 0x7b);
  CHECK(roundedTo(e5m2, oneToo, 61440) == 0x7c);
  CHECK(roundedTo(e5m2, oneToo, -1e9) == 0xfc);
  CHECK(roundedTo(e5m2, oneToo, NAN) == 0x7f);
  CHECK(roundedTo(e5m2, oneToo, 0x1.8p-17) == 1);
  CHECK(roundedTo(e5m2, oneToo, 0x1p-17) == 0);
}

TEST_CASE("8-bit floats are summed in float32 and rounded once") {
  // 16 + 1 + 1 is 18; rounded after each step it would stay at 16.
  CHECK(reduceOne<uint8_t>({DType::kFloat8E4m3fn}, {0x58, 0x38, 0, 0x38}) == 0x59);
  // 448 + 448 - 448: no overflow on the way.
  CHECK(reduceOne<uint8_t>({DType::kFloat8E4m3fn}, {0x7e, 0x7e, 0xfe}) == 0x7e);
}

using Complex = std::complex<float>;

TEST_CASE("complex sums, averages and products go by their parts") {
  const DType dtype = DType::kComplex64;
  CHECK(reduceOne<Complex>({dtype}, {{1, 2}, {3, -5}, {0, 1}}) == Complex(4, -2));
  CHECK(reduceOne<Complex>({dtype, ReduceOp::kAverage, 2}, {{1, 2}, {3, -5}}) == Complex(2, -1.5));
  CHECK(reduceOne<Complex>({dtype, ReduceOp::kProduct}, {{1, 2}, {3, -5}}) == Complex(13, 1));
  CHECK(reduceOne<Complex>({dtype, ReduceOp::kProduct, 1, 2, 0.5}, {{1, 2}, {3, -5}}) ==
        Complex(26, 2));
  using Wide = std::complex<double>;
  CHECK(reduceOne<Wide>({DType::kComplex128, ReduceOp::kProduct}, {{0, 1}, {0, 1}, {2, 3}}) ==
        Wide(-2, -3));
}

TEST_CASE("a NaN in one part of a complex number leaves the other part of a sum alone") {
  const Complex sum = reduceOne<Complex>({DType::kComplex64}, {{-NAN, 1}, {2, 3}});
  uint32_t bits = 0;
  const float real = sum.real();
  std::memcpy(&bits, &real, sizeof bits);
  CHECK(bits == 0x7fc00000);
  CHECK(sum.imag() == 4);
}

}  // namespace
}  // namespace rueda::shm
