// SPDX-License-Identifier: Apache-2.0
#pragma once

// The reduction of shm/reduce_kernels.h once more, slow and plain: one element at a time, one
// recursion over the inputs. For tests; any thread. Shares no code with what it checks.

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "shm/reduce_kernels.h"
#include "tests/kit/small_float.h"

namespace rueda::kit {

using shm::DType;
using shm::ReduceOp;
using shm::ReduceSpec;

// Left half: the largest power of two below n.
template <typename T>
T referenceTree(const T* values, size_t n, const std::function<T(T, T)>& combine) {
  if (n == 1) return values[0];
  size_t left = 1;
  while (left * 2 < n) left *= 2;
  return combine(referenceTree(values, left, combine),
                 referenceTree(values + left, n - left, combine));
}

template <typename T>
T referenceCombine(ReduceOp op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const bool extreme = op == ReduceOp::kMin || op == ReduceOp::kMax;
    if (extreme && (std::isnan(a) || std::isnan(b))) return std::numeric_limits<T>::quiet_NaN();
  }
  if (op == ReduceOp::kMin) return b < a ? b : a;
  if (op == ReduceOp::kMax) return b > a ? b : a;
  const bool product = op == ReduceOp::kProduct;
  if constexpr (std::is_floating_point_v<T>) {
    return product ? a * b : a + b;
  } else {
    const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<T>(product ? x * y : x + y);
  }
}

template <typename T>
T referenceScale(T value, double scale) {
  using Limits = std::numeric_limits<T>;
  const double scaled = std::trunc(static_cast<double>(value) * scale);
  if (std::isnan(scaled)) return 0;
  // long double holds every 64-bit integer.
  if (static_cast<long double>(scaled) >= Limits::max()) return Limits::max();
  if (static_cast<long double>(scaled) <= Limits::min()) return Limits::min();
  return static_cast<T>(scaled);
}

template <typename T>
T referenceInteger(const ReduceSpec& spec, std::vector<T> values) {
  for (T& value : values) {
    if (spec.prescale != 1) value = referenceScale(value, spec.prescale);
  }
  const T result = referenceTree<T>(values.data(), values.size(),
                                    [&](T a, T b) { return referenceCombine(spec.op, a, b); });
  const int ranks = spec.op == ReduceOp::kAverage ? spec.ranks : 1;
  if (spec.postscale == 1) return static_cast<T>(static_cast<int64_t>(result) / ranks);
  const double scale = spec.postscale / ranks;
  return scale == 1 ? result : referenceScale(result, scale);
}

template <typename T>
T referenceFloat(const ReduceSpec& spec, std::vector<T> values) {
  for (T& value : values) value *= static_cast<T>(spec.prescale);
  T result = referenceTree<T>(values.data(), values.size(),
                              [&](T a, T b) { return referenceCombine(spec.op, a, b); });
  const double ranks = spec.op == ReduceOp::kAverage ? spec.ranks : 1;
  result *= static_cast<T>(spec.postscale / ranks);
  return std::isnan(result) ? std::numeric_limits<T>::quiet_NaN() : result;
}

template <typename Format>
uint16_t referenceSmall(const ReduceSpec& spec, const std::vector<uint16_t>& values) {
  std::vector<float> decoded;
  for (const uint16_t value : values) decoded.push_back(Format::decode(value));
  return Format::encode(referenceFloat(spec, decoded));
}

inline uint8_t referenceBool(const ReduceSpec& spec, const std::vector<uint8_t>& values) {
  const bool all = spec.op == ReduceOp::kProduct || spec.op == ReduceOp::kMin;
  size_t trues = 0;
  for (const uint8_t value : values) trues += value != 0;
  return all ? trues == values.size() : trues > 0;
}

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
  return result;
}

}  // namespace rueda::kit
