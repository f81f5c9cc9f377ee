// SPDX-License-Identifier: Apache-2.0
#include "shm/dtype.h"

#include <catch2/catch.hpp>
#include <string>

namespace {

using namespace rueda::shm;  // NOLINT: the whole header is under test.

}  // namespace

TEST_CASE("every data type has its wire value, size and name") {
  struct Row {
    int wire;
    DType dtype;
    size_t bytes;
    const char* name;
    bool isFloat;
  };
  const Row rows[] = {{0, DType::kUint8, 1, "uint8", false},
                      {1, DType::kInt8, 1, "int8", false},
                      {2, DType::kUint16, 2, "uint16", false},
                      {3, DType::kInt16, 2, "int16", false},
                      {4, DType::kInt32, 4, "int32", false},
                      {5, DType::kInt64, 8, "int64", false},
                      {6, DType::kFloat16, 2, "float16", true},
                      {7, DType::kFloat32, 4, "float32", true},
                      {8, DType::kFloat64, 8, "float64", true},
                      {9, DType::kBool, 1, "bool", false},
                      {10, DType::kBfloat16, 2, "bfloat16", true},
                      {11, DType::kUint32, 4, "uint32", false},
                      {12, DType::kUint64, 8, "uint64", false},
                      {13, DType::kFloat8E4m3fn, 1, "float8_e4m3fn", true},
                      {14, DType::kFloat8E5m2, 1, "float8_e5m2", true},
                      {15, DType::kComplex64, 8, "complex64", false},
                      {16, DType::kComplex128, 16, "complex128", false}};
  CHECK(std::size(rows) == kDTypeCount);
  for (const Row& row : rows) {
    CHECK(dtypeFromWire(static_cast<uint8_t>(row.wire)) == row.dtype);
    CHECK(dtypeSize(row.dtype) == row.bytes);
    CHECK(dtypeName(row.dtype) == std::string(row.name));
    CHECK(isFloating(row.dtype) == row.isFloat);
  }
}

TEST_CASE("bytes of a peer that name nothing are told from those that do") {
  for (int value = 0; value < 256; ++value) {
    const auto byte = static_cast<uint8_t>(value);
    CHECK(dtypeFromWire(byte).has_value() == (value <= 16));
    CHECK(reduceOpFromWire(byte).has_value() == (value <= 5));
    CHECK(opKindFromWire(byte).has_value() == (value <= 8));
  }
}

TEST_CASE("operations and kinds keep their numbers and names") {
  CHECK(reduceOpFromWire(0) == ReduceOp::kAverage);
  CHECK(reduceOpFromWire(1) == ReduceOp::kSum);
  CHECK(reduceOpFromWire(3) == ReduceOp::kMin);
  CHECK(reduceOpFromWire(4) == ReduceOp::kMax);
  CHECK(reduceOpFromWire(5) == ReduceOp::kProduct);
  CHECK(std::string(reduceOpName(ReduceOp::kAverage)) == "average");
  CHECK(std::string(reduceOpName(ReduceOp::kSum)) == "sum");
  CHECK(std::string(reduceOpName(ReduceOp::kMin)) == "min");
  CHECK(std::string(reduceOpName(ReduceOp::kMax)) == "max");
  CHECK(std::string(reduceOpName(ReduceOp::kProduct)) == "product");
  CHECK(std::string(opKindName(*opKindFromWire(0))) == "allreduce");
  CHECK(std::string(opKindName(*opKindFromWire(1))) == "allgather");
  CHECK(std::string(opKindName(*opKindFromWire(2))) == "broadcast");
  CHECK(std::string(opKindName(*opKindFromWire(3))) == "barrier");
}

TEST_CASE("complex numbers have no minimum and no maximum; every other reduction is possible") {
  for (int wire = 0; wire < kDTypeCount; ++wire) {
    const DType dtype = *dtypeFromWire(static_cast<uint8_t>(wire));
    const bool isReal = dtype != DType::kComplex64 && dtype != DType::kComplex128;
    CHECK(isComplex(dtype) == !isReal);
    for (const ReduceOp op : {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kProduct})
      CHECK(canReduce(OpKind::kAllreduce, dtype, op));
    for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax})
      CHECK(canReduce(OpKind::kAllreduce, dtype, op) == isReal);
  }
  CHECK(impossibleReduction(OpKind::kAllreduce, DType::kComplex64, ReduceOp::kMin) ==
        "complex64 has no min");
}

TEST_CASE("Adasum is an allreduce of real floats of at least 16 bits") {
  for (int wire = 0; wire < kDTypeCount; ++wire) {
    const DType dtype = *dtypeFromWire(static_cast<uint8_t>(wire));
    const bool isReal = dtype == DType::kFloat16 || dtype == DType::kBfloat16 ||
                        dtype == DType::kFloat32 || dtype == DType::kFloat64;
    CHECK(canReduce(OpKind::kAllreduce, dtype, ReduceOp::kAdasum) == isReal);
    CHECK_FALSE(canReduce(OpKind::kReducescatter, dtype, ReduceOp::kAdasum));
  }
  CHECK(impossibleReduction(OpKind::kReducescatter, DType::kFloat32, ReduceOp::kAdasum) ==
        "adasum is for allreduce, not for reducescatter");
}
