// SPDX-License-Identifier: Apache-2.0
#pragma once

// Seeded tensors of any data type, and what their reduction must be: shm::reduce on one core, on
// one piece. Pure.

#include <cstring>
#include <iterator>
#include <random>
#include <vector>

#include "shm/reduce_kernels.h"

namespace rueda::kit {

using Bytes = std::vector<char>;

constexpr shm::DType kDTypes[] = {
    shm::DType::kUint8,     shm::DType::kInt8,         shm::DType::kUint16,
    shm::DType::kInt16,     shm::DType::kInt32,        shm::DType::kInt64,
    shm::DType::kFloat16,   shm::DType::kFloat32,      shm::DType::kFloat64,
    shm::DType::kBool,      shm::DType::kBfloat16,     shm::DType::kUint32,
    shm::DType::kUint64,    shm::DType::kFloat8E4m3fn, shm::DType::kFloat8E5m2,
    shm::DType::kComplex64, shm::DType::kComplex128};
static_assert(std::size(kDTypes) == shm::kDTypeCount);
constexpr shm::ReduceOp kReduceOps[] = {shm::ReduceOp::kAverage, shm::ReduceOp::kSum,
                                        shm::ReduceOp::kMin, shm::ReduceOp::kMax,
                                        shm::ReduceOp::kProduct};

// Those that the type has.
inline std::vector<shm::ReduceOp> opsOf(shm::DType dtype) {
  std::vector<shm::ReduceOp> ops;
  for (const shm::ReduceOp op : kReduceOps)
    if (shm::canReduce(rueda::shm::OpKind::kAllreduce, dtype, op)) ops.push_back(op);
  return ops;
}

namespace internal {

template <typename T>
void append(Bytes* bytes, T value) {
  const auto* first = reinterpret_cast<const char*>(&value);
  bytes->insert(bytes->end(), first, first + sizeof value);
}

inline void appendElement(Bytes* bytes, shm::DType dtype, std::mt19937_64& random) {
  const uint64_t bits = random();
  // Finite and near 1, so that the order of additions shows in the last bits.
  const double value = static_cast<double>(static_cast<int64_t>(bits)) / 4e18;
  switch (dtype) {
    case shm::DType::kFloat32:
      return append(bytes, static_cast<float>(value));
    case shm::DType::kFloat64:
      return append(bytes, value);
    case shm::DType::kFloat16:  // Sign, exponent 10 to 17, mantissa.
      return append(bytes, static_cast<uint16_t>((bits & 0x83ff) | (10 + (bits >> 20) % 8) << 10));
    case shm::DType::kBfloat16:  // Sign, exponent 122 to 129, mantissa.
      return append(bytes, static_cast<uint16_t>((bits & 0x807f) | (122 + (bits >> 20) % 8) << 7));
    case shm::DType::kBool:
      return append(bytes, static_cast<uint8_t>(bits & 1));
    case shm::DType::kUint8:
    case shm::DType::kInt8:
      return append(bytes, static_cast<uint8_t>(bits));
    case shm::DType::kUint16:
    case shm::DType::kInt16:
      return append(bytes, static_cast<uint16_t>(bits));
    case shm::DType::kInt32:
    case shm::DType::kUint32:
      return append(bytes, static_cast<uint32_t>(bits));
    case shm::DType::kInt64:
    case shm::DType::kUint64:
      return append(bytes, bits);
    case shm::DType::kFloat8E4m3fn:  // Sign, exponent 4 to 7, mantissa.
      return append(bytes, static_cast<uint8_t>((bits & 0x87) | (4 + (bits >> 20) % 4) << 3));
    case shm::DType::kFloat8E5m2:  // Sign, exponent 12 to 15, mantissa.
      return append(bytes, static_cast<uint8_t>((bits & 0x83) | (12 + (bits >> 20) % 4) << 2));
    case shm::DType::kComplex64:
    case shm::DType::kComplex128: {
      const auto part =
          dtype == shm::DType::kComplex64 ? shm::DType::kFloat32 : shm::DType::kFloat64;
      appendElement(bytes, part, random);
      return appendElement(bytes, part, random);
    }
  }
}

}  // namespace internal

inline Bytes randomTensor(shm::DType dtype, uint64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes;
  bytes.reserve(count * shm::dtypeSize(dtype));
  for (uint64_t i = 0; i < count; ++i) internal::appendElement(&bytes, dtype, random);
  return bytes;
}

// Of `inputs` by rank.
inline Bytes expectedReduction(const shm::ReduceSpec& spec, const std::vector<Bytes>& inputs) {
  Bytes result(inputs.front().size());
  std::vector<const void*> pointers;
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  void* output = result.data();
  shm::reduce(spec, pointers.data(), static_cast<int>(pointers.size()), &output, 1,
              result.size() / shm::dtypeSize(spec.dtype));
  return result;
}

}  // namespace rueda::kit
