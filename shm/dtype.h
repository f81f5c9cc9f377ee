// SPDX-License-Identifier: Apache-2.0
#pragma once

// Data types, reduce operations and kinds of operation with their wire values. Pure; any thread.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

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
  kUint32 = 11,
  kUint64 = 12,
  kFloat8E4m3fn = 13,  // 4 bits of exponent, 3 of mantissa; no infinity, NaN 0x7f and 0xff.
  kFloat8E5m2 = 14,    // The upper half of a float16.
  kComplex64 = 15,     // Two float32: real part, imaginary part.
  kComplex128 = 16,    // Two float64.
};
constexpr int kDTypeCount = 17;

// Values of Horovod's constants, which scripts pass as integers.
enum class ReduceOp : uint8_t {
  kAverage = 0,
  kSum = 1,
  kAdasum = 2,  // Not element by element: needs dot products of whole tensors.
  kMin = 3,
  kMax = 4,
  kProduct = 5,
};

enum class OpKind : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kBroadcast = 2,
  kBarrier = 3,
  kAlltoall = 4,
  kReducescatter = 5,
  kJoin = 6,       // "I have no more data": others go on without this rank until all have joined.
  kAddSet = 7,     // All ranks of the job make a process set.
  kRemoveSet = 8,  // All ranks of the job dissolve one.
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

// Carries no tensor: ranks agree on something.
constexpr bool isAgreement(OpKind kind) {
  return kind == OpKind::kBarrier || kind == OpKind::kJoin || kind == OpKind::kAddSet ||
         kind == OpKind::kRemoveSet;
}

// Checked conversions of a byte from a peer; nullopt for a value not in the enum.
std::optional<DType> dtypeFromWire(uint8_t value);
std::optional<ReduceOp> reduceOpFromWire(uint8_t value);
std::optional<OpKind> opKindFromWire(uint8_t value);

// Bytes of one element: 1, 2, 4, 8 or 16.
constexpr size_t dtypeSize(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
    case DType::kInt8:
    case DType::kBool:
    case DType::kFloat8E4m3fn:
    case DType::kFloat8E5m2:
      return 1;
    case DType::kUint16:
    case DType::kInt16:
    case DType::kFloat16:
    case DType::kBfloat16:
      return 2;
    case DType::kInt32:
    case DType::kUint32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kUint64:
    case DType::kFloat64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
  }
  return 1;
}

const char* dtypeName(DType dtype);     // "float32", as torch and numpy say
const char* reduceOpName(ReduceOp op);  // "sum"
const char* opKindName(OpKind kind);    // "allreduce"
bool isFloating(DType dtype);           // Real ones: not complex.
bool isComplex(DType dtype);

// Whether an operation of this kind can combine elements of this type so: complex numbers have no
// order, hence no minimum and no maximum; Adasum is an allreduce of real floats of 16 bits and
// more; everything else is possible.
bool canReduce(OpKind kind, DType dtype, ReduceOp op);
// Why canReduce says no, for messages that begin with the operation and the tensor: "complex64 has
// no min".
std::string impossibleReduction(OpKind kind, DType dtype, ReduceOp op);

}  // namespace rueda::shm
