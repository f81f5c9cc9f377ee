// SPDX-License-Identifier: Apache-2.0
#pragma once

// Vectors as wide as the compiler's flags allow, and unaligned and partial access to them. First
// of the reduce_*.h files that each reduce_kernels_<isa>.cc compiles with its own flags.
//
// All of them live in an unnamed namespace on purpose: were the same template instantiated in two
// of those files under one name, the linker would keep one copy, perhaps the one that an older
// CPU cannot run. For the same reason they call nothing from the standard library but memcpy.

#include <cstddef>
#include <cstdint>
#include <utility>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#ifdef __FAST_MATH__
#error "Results must not depend on the instruction set: compile without -ffast-math."
#endif

#define RUEDA_INLINE inline __attribute__((always_inline))
#define RUEDA_INLINE_LAMBDA __attribute__((always_inline))

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see above.

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <typename T, int kLanes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kLanes * sizeof(T))));
};
template <typename T, int kLanes>
using Vector = typename VectorOf<T, kLanes>::Type;

// step(0) to step(kTimes - 1), unrolled at every optimisation level that inlines.
template <typename Step, int... kIndex>
RUEDA_INLINE void unroll(std::integer_sequence<int, kIndex...>, const Step& step) {
  (step(kIndex), ...);
}
template <int kTimes, typename Step>
RUEDA_INLINE void unroll(const Step& step) {
  unroll(std::make_integer_sequence<int, kTimes>(), step);
}

template <typename V>
RUEDA_INLINE V load(const char* from) {
  V vector;
  __builtin_memcpy(&vector, from, sizeof(V));
  return vector;
}

template <typename V>
RUEDA_INLINE void store(char* to, V vector) {
  __builtin_memcpy(to, &vector, sizeof(V));
}

// The first `bytes` bytes from memory, zeros after. REQUIRES: 0 < bytes < sizeof(V).
template <typename V>
RUEDA_INLINE V loadPartial(const char* from, size_t bytes) {
#ifdef __AVX512BW__
  const uint64_t mask = (uint64_t{1} << bytes) - 1;
  if constexpr (sizeof(V) == 64) return (V)_mm512_maskz_loadu_epi8(mask, from);
  if constexpr (sizeof(V) == 32) return (V)_mm256_maskz_loadu_epi8(mask, from);
#endif
  V vector = {};
  __builtin_memcpy(&vector, from, bytes);
  return vector;
}

// REQUIRES: 0 < bytes < sizeof(V).
template <typename V>
RUEDA_INLINE void storePartial(char* to, V vector, size_t bytes) {
#ifdef __AVX512BW__
  const uint64_t mask = (uint64_t{1} << bytes) - 1;
  if constexpr (sizeof(V) == 64) return _mm512_mask_storeu_epi8(to, mask, (__m512i)vector);
  if constexpr (sizeof(V) == 32) return _mm256_mask_storeu_epi8(to, mask, (__m256i)vector);
#endif
  __builtin_memcpy(to, &vector, bytes);
}

// `value` in every lane. Subtracting keeps the sign of a zero, adding would not.
template <typename V, typename T>
RUEDA_INLINE V broadcast(T value) {
  return value - V{};
}

// Every NaN becomes the positive quiet one. Which operand's payload an addition hands on is the
// compiler's choice, so without this equal inputs could give unequal bits.
template <typename V>
RUEDA_INLINE V canonicalNan(V vector) {
  using T = decltype(vector[0] + vector[0]);
  constexpr T kNan = static_cast<T>(__builtin_nan(""));
  return vector == vector ? vector : broadcast<V>(kNan);
}

}  // namespace
}  // namespace rueda::shm
