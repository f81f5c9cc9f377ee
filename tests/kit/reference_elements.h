// SPDX-License-Identifier: Apache-2.0
#pragma once

// The elements of reference_reduce.h: how those of each family of types become one. For tests; any
// thread.

#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "shm/reduce_kernels.h"

namespace rueda::kit {

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
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  if (spec.postscale == 1) return static_cast<T>(Wide{result} / static_cast<Wide>(ranks));
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

// std::complex holds the two parts; its operators, which recover infinities, are not used.
template <typename T>
std::complex<T> referenceProduct(std::complex<T> a, std::complex<T> b) {
  return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

template <typename T>
std::complex<T> referenceComplex(const ReduceSpec& spec, std::vector<std::complex<T>> values) {
  std::vector<T> real, imaginary;
  for (std::complex<T>& value : values) {
    value = {value.real() * static_cast<T>(spec.prescale),
             value.imag() * static_cast<T>(spec.prescale)};
    real.push_back(value.real());
    imaginary.push_back(value.imag());
  }
  ReduceSpec rest = spec;
  rest.prescale = 1;
  if (spec.op == ReduceOp::kProduct) {
    const auto product =
        referenceTree<std::complex<T>>(values.data(), values.size(), referenceProduct<T>);
    real = {product.real()};
    imaginary = {product.imag()};
  }
  return {referenceFloat(rest, real), referenceFloat(rest, imaginary)};
}

template <typename Format, typename Bits = typename Format::Bits>
Bits referenceSmall(const ReduceSpec& spec, const std::vector<Bits>& values) {
  std::vector<float> decoded;
  for (const Bits value : values) decoded.push_back(Format::decode(value));
  return Format::encode(referenceFloat(spec, decoded));
}

inline uint8_t referenceBool(const ReduceSpec& spec, const std::vector<uint8_t>& values) {
  const bool all = spec.op == ReduceOp::kProduct || spec.op == ReduceOp::kMin;
  size_t trues = 0;
  for (const uint8_t value : values) trues += value != 0;
  return all ? trues == values.size() : trues > 0;
}

}  // namespace rueda::kit
