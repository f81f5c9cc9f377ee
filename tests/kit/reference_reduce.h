// SPDX-License-Identifier: Apache-2.0
#pragma once

// The reduction of shm/reduce_kernels.h once more, slow and plain: one element at a time, one
// recursion over the inputs. For tests; any thread. Shares no code with what it checks.

#include <cstring>
#include <vector>

#include "shm/reduce_kernels.h"
#include "tests/kit/reference_elements.h"
#include "tests/kit/small_float.h"

namespace rueda::kit {

using shm::DType;

// The bytes that reduce() must write to every output. One input without a scale keeps its bits,
// NaN payloads included.
inline std::vector<char> referenceReduce(const ReduceSpec& spec,
                                         const std::vector<const void*>& inputs, size_t count) {
  std::vector<char> result(count * shm::dtypeSize(spec.dtype));
  const bool average = spec.op == ReduceOp::kAverage && spec.ranks != 1;
  const bool scaled = spec.prescale != 1 || spec.postscale != 1 || average;
  if (inputs.size() == 1 && !scaled && spec.dtype != DType::kBool) {
    const char* only = static_cast<const char*>(inputs[0]);
    return std::vector<char>(only, only + result.size());
  }
  const auto each = [&](auto reduceOne) {
    using T = decltype(reduceOne(spec, {}));
    std::vector<T> values(inputs.size());
    for (size_t offset = 0; offset < result.size(); offset += sizeof(T)) {
      for (size_t k = 0; k < inputs.size(); ++k) {
        std::memcpy(&values[k], static_cast<const char*>(inputs[k]) + offset, sizeof(T));
      }
      const T one = reduceOne(spec, values);
      std::memcpy(result.data() + offset, &one, sizeof(T));
    }
  };
  const DType dtype = spec.dtype;
  if (dtype == DType::kUint8) each(referenceInteger<uint8_t>);
  if (dtype == DType::kInt8) each(referenceInteger<int8_t>);
  if (dtype == DType::kUint16) each(referenceInteger<uint16_t>);
  if (dtype == DType::kInt16) each(referenceInteger<int16_t>);
  if (dtype == DType::kInt32) each(referenceInteger<int32_t>);
  if (dtype == DType::kInt64) each(referenceInteger<int64_t>);
  if (dtype == DType::kFloat16) each(referenceSmall<Half>);
  if (dtype == DType::kFloat32) each(referenceFloat<float>);
  if (dtype == DType::kFloat64) each(referenceFloat<double>);
  if (dtype == DType::kBool) each(referenceBool);
  if (dtype == DType::kBfloat16) each(referenceSmall<Brain>);
  if (dtype == DType::kUint32) each(referenceInteger<uint32_t>);
  if (dtype == DType::kUint64) each(referenceInteger<uint64_t>);
  if (dtype == DType::kFloat8E4m3fn) each(referenceSmall<E4m3fn>);
  if (dtype == DType::kFloat8E5m2) each(referenceSmall<E5m2>);
  if (dtype == DType::kComplex64) each(referenceComplex<float>);
  if (dtype == DType::kComplex128) each(referenceComplex<double>);
  return result;
}

}  // namespace rueda::kit
