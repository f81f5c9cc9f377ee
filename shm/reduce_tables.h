// SPDX-License-Identifier: Apache-2.0
#pragma once

// Chooses which loops exist for which type and operation: many for the sums that training spends
// its time in, few for the rest, which then goes through blocks. Compiled once per instruction
// set, see reduce_vector.h.

#include <type_traits>

#include "shm/reduce_complex.h"
#include "shm/reduce_loops.h"
#include "shm/reduce_rescale.h"
#include "shm/reduce_small_floats.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// Loops over 1, 2 and 4 inputs; for sums also 3 and 8, for sums of floats all up to 8.
template <typename In, typename Out, Combine kCombine, bool kPre, bool kPost>
constexpr KernelsByInputs loops() {
  KernelsByInputs loops;
  loops.of[1] = Loop<In, Out, kCombine, 1, kPre, kPost>::run;
  loops.of[2] = Loop<In, Out, kCombine, 2, kPre, kPost>::run;
  loops.of[4] = Loop<In, Out, kCombine, 4, kPre, kPost>::run;
  if constexpr (kCombine == Combine::kAdd && !kPre) {
    loops.of[3] = Loop<In, Out, kCombine, 3, kPre, kPost>::run;
    loops.of[8] = Loop<In, Out, kCombine, 8, kPre, kPost>::run;
    if constexpr (std::is_floating_point_v<typename In::Scalar>) {
      loops.of[5] = Loop<In, Out, kCombine, 5, kPre, kPost>::run;
      loops.of[6] = Loop<In, Out, kCombine, 6, kPre, kPost>::run;
      loops.of[7] = Loop<In, Out, kCombine, 7, kPre, kPost>::run;
    }
  }
  return loops;
}

template <typename Format, Combine kCombine>
constexpr KernelSet floatSet() {
  using Accumulator = typename Format::Accumulator;
  KernelSet set;
  set.accumulatorBytes = Accumulator::kBytes;
  set.direct = loops<Format, Format, kCombine, false, false>();
  if constexpr (kCombine == Combine::kAdd) {
    set.directPost = loops<Format, Format, kCombine, false, true>();
    set.directPrePost = loops<Format, Format, kCombine, true, true>();
  }
  set.leaf.of[1] = Loop<Format, Accumulator, Combine::kAdd, 1, false, false>::run;
  set.leaf.of[4] = Loop<Format, Accumulator, kCombine, 4, false, false>::run;
  set.leafPre.of[1] = Loop<Format, Accumulator, Combine::kAdd, 1, true, false>::run;
  if constexpr (kCombine == Combine::kAdd) {
    set.leaf.of[8] = Loop<Format, Accumulator, kCombine, 8, false, false>::run;
    set.leafPre.of[4] = Loop<Format, Accumulator, kCombine, 4, true, false>::run;
  }
  set.combine = Loop<Accumulator, Accumulator, kCombine, 2, false, false>::run;
  set.spread = Loop<Accumulator, Format, Combine::kAdd, 1, false, false>::run;
  set.spreadPost = Loop<Accumulator, Format, Combine::kAdd, 1, false, true>::run;
  return set;
}

template <typename Format, Combine kCombine>
constexpr KernelSet unscaledSet() {
  KernelSet set;
  set.accumulatorBytes = Format::kBytes;
  set.direct = loops<Format, Format, kCombine, false, false>();
  set.leaf = set.direct;
  set.combine = set.direct.of[2];
  set.spread = Loop<Format, Format, Combine::kAdd, 1, false, false>::run;
  return set;
}

// Sums and products wrap, so they are computed unsigned; scales and comparisons need the sign.
template <typename T, Combine kCombine>
constexpr KernelSet integerSet() {
  constexpr bool kWraps = kCombine == Combine::kAdd || kCombine == Combine::kMultiply;
  using Lane = std::conditional_t<kWraps, std::make_unsigned_t<T>, T>;
  KernelSet set = unscaledSet<Native<Lane>, kCombine>();
  set.leafPre.of[1] = Rescale<T, true>::run;
  set.spreadPost = Rescale<T, false>::run;
  if constexpr (sizeof(T) == 8) set.spreadDivide = Divide64<T>::run;
  return set;
}

// Tables of constants; no code runs to make them.
template <typename Format, Combine kCombine>
constexpr KernelSet kFloatSet = floatSet<Format, kCombine>();
template <typename T, Combine kCombine>
constexpr KernelSet kIntegerSet = integerSet<T, kCombine>();
template <Combine kCombine>
constexpr KernelSet kBooleanSet = unscaledSet<Boolean, kCombine>();

template <Combine kCombine>
const KernelSet& kernelsOf(DType dtype) {
  // For 0 and 1 "or" is the maximum and "and" the minimum.
  constexpr bool kOr = kCombine == Combine::kAdd || kCombine == Combine::kMax;
  switch (dtype) {
    case DType::kUint8:
      return kIntegerSet<uint8_t, kCombine>;
    case DType::kInt8:
      return kIntegerSet<int8_t, kCombine>;
    case DType::kUint16:
      return kIntegerSet<uint16_t, kCombine>;
    case DType::kInt16:
      return kIntegerSet<int16_t, kCombine>;
    case DType::kInt32:
      return kIntegerSet<int32_t, kCombine>;
    case DType::kInt64:
      return kIntegerSet<int64_t, kCombine>;
    case DType::kFloat16:
      return kFloatSet<Float16, kCombine>;
    case DType::kFloat32:
      return kFloatSet<Native<float>, kCombine>;
    case DType::kFloat64:
      return kFloatSet<Native<double>, kCombine>;
    case DType::kBool:
      return kBooleanSet < kOr ? Combine::kMax : Combine::kMin > ;
    case DType::kBfloat16:
      return kFloatSet<Bfloat16, kCombine>;
    case DType::kUint32:
      return kIntegerSet<uint32_t, kCombine>;
    case DType::kUint64:
      return kIntegerSet<uint64_t, kCombine>;
    case DType::kFloat8E4m3fn:
      return kFloatSet<Float8E4m3fn, kCombine>;
    case DType::kFloat8E5m2:
      return kFloatSet<Float8E5m2, kCombine>;
    case DType::kComplex64:
      return kFloatSet<Complex<float>, Combine::kMultiply>;
    case DType::kComplex128:
      return kFloatSet<Complex<double>, Combine::kMultiply>;
  }
  __builtin_unreachable();
}

RUEDA_INLINE const KernelSet& kernelsFor(DType dtype, Combine combine) {
  switch (combine) {
    case Combine::kAdd:
      return kernelsOf<Combine::kAdd>(dtype);
    case Combine::kMultiply:
      return kernelsOf<Combine::kMultiply>(dtype);
    case Combine::kMin:
      return kernelsOf<Combine::kMin>(dtype);
    case Combine::kMax:
      return kernelsOf<Combine::kMax>(dtype);
  }
  __builtin_unreachable();
}

}  // namespace
}  // namespace rueda::shm
