// SPDX-License-Identifier: Apache-2.0
#pragma once

// Data types, reduce operations and kinds of operation with their wire values. Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <optional>

namespace rueda::shm {

// Wire values, shared with the C ABI (client/c/rueda.h); never renumber.
enum class DType : uint8_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBool = 9,
  kBfloat16 = 10,
};
constexpr int kDTypeCount = 11;

// Values of Horovod's constants, which scripts pass as integers. 2 (Adasum) is not offered here.
enum class ReduceOp : uint8_t { kAverage = 0, kSum = 1, kMin = 3, kMax = 4, kProduct = 5 };

enum class OpKind : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kBarrier = 3,
  kAlltoall = 4,
  kReducescatter = 5,
};

// Combines elements of all ranks.
constexpr bool reduces(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter;
}
// Deals out rows of inputs as they are; every rank copies what is for it from where it lies.
constexpr bool gathers(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kAlltoall;
}
// Works on rows: a scalar has none.
constexpr bool needsRows(OpKind kind) { return gathers(kind) || kind == OpKind::kReducescatter; }

// Checked conversions of a byte from a peer; nullopt for a value not in the enum.
std::optional<DType> dtypeFromWire(uint8_t value);
std::optional<ReduceOp> reduceOpFromWire(uint8_t value);
std::optional<OpKind> opKindFromWire(uint8_t value);

// Bytes of one element: 1, 2, 4 or 8.
constexpr size_t dtypeSize(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBool:
      return 1;
    case DType::kUint16:
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBfloat16:
      return 2;
    case DType::kInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kFloat64:
      return 8;
  }
  return 1;
}

const char* dtypeName(DType dtype);     // "float32"
const char* reduceOpName(ReduceOp op);  // "sum"
const char* opKindName(OpKind kind);    // "allreduce"
bool isFloating(DType dtype);

}  // namespace rueda::shm
