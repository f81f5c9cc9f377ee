// SPDX-License-Identifier: Apache-2.0
#include "shm/dtype.h"

namespace rueda::shm {

std::optional<DType> dtypeFromWire(uint8_t value) {
  if (value >= kDTypeCount) return std::nullopt;
  return static_cast<DType>(value);
}

std::optional<ReduceOp> reduceOpFromWire(uint8_t value) {
  if (value > static_cast<uint8_t>(ReduceOp::kProduct)) return std::nullopt;
  return static_cast<ReduceOp>(value);
}

std::optional<OpKind> opKindFromWire(uint8_t value) {
  if (value > static_cast<uint8_t>(OpKind::kRemoveSet)) return std::nullopt;
  return static_cast<OpKind>(value);
}

const char* dtypeName(DType dtype) {
  switch (dtype) {
    case DType::kUint8:
      return "uint8";
    case DType::kInt8:
      return "int8";
    case DType::kUint16:
      return "uint16";
    case DType::kInt16:
      return "int16";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat16:
      return "float16";
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kBool:
      return "bool";
    case DType::kBfloat16:
      return "bfloat16";
    case DType::kUint32:
      return "uint32";
    case DType::kUint64:
      return "uint64";
    case DType::kFloat8E4m3fn:
      return "float8_e4m3fn";
    case DType::kFloat8E5m2:
      return "float8_e5m2";
    case DType::kComplex64:
      return "complex64";
    case DType::kComplex128:
      return "complex128";
  }
  return "?";
}

const char* reduceOpName(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAdasum:
      return "adasum";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
  }
  return "?";
}

const char* opKindName(OpKind kind) {
  switch (kind) {
    case OpKind::kAllreduce:
      return "allreduce";
    case OpKind::kAllgather:
      return "allgather";
    case OpKind::kBroadcast:
      return "broadcast";
    case OpKind::kBarrier:
      return "barrier";
    case OpKind::kAlltoall:
      return "alltoall";
    case OpKind::kReducescatter:
      return "reducescatter";
    case OpKind::kJoin:
      return "join";
    case OpKind::kAddSet:
      return "add process set";
    case OpKind::kRemoveSet:
      return "remove process set";
  }
  return "?";
}

bool isFloating(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64 || dtype == DType::kFloat8E4m3fn || dtype == DType::kFloat8E5m2;
}

bool isComplex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

bool canReduce(OpKind kind, DType dtype, ReduceOp op) {
  if (op == ReduceOp::kAdasum)
    return kind == OpKind::kAllreduce && isFloating(dtype) && dtypeSize(dtype) > 1;
  return !isComplex(dtype) || (op != ReduceOp::kMin && op != ReduceOp::kMax);
}

std::string impossibleReduction(OpKind kind, DType dtype, ReduceOp op) {
  if (op == ReduceOp::kAdasum && kind != OpKind::kAllreduce)
    return std::string("adasum is for allreduce, not for ") + opKindName(kind);
  return std::string(dtypeName(dtype)) + " has no " + reduceOpName(op);
}

}  // namespace rueda::shm
