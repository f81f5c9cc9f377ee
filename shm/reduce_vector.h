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

// Sanitizers check each lane of a masked access and each access of an unrolled loop, which takes
// minutes to compile: with them, loops are short and partial vectors are copied.
#if defined(__has_feature)
#define RUEDA_SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RUEDA_SANITIZED 1
#else
#define RUEDA_SANITIZED 0
#endif
constexpr bool kUnrolled = !RUEDA_SANITIZED;
constexpr bool kMasked = !RUEDA_SANITIZED;

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

template <int kBytes>
RUEDA_INLINE void prefetch(const char* from) {
  constexpr int kLine = 64;
  unroll<(kBytes + kLine - 1) / kLine>(
      [&](int line) RUEDA_INLINE_LAMBDA { __builtin_prefetch(from + line * kLine); });
}

// The first `bytes` bytes from memory, zeros after. REQUIRES: 0 < bytes < sizeof(V).
template <typename V>
RUEDA_INLINE V loadPartial(const char* from, size_t bytes) {
#ifdef __AVX512BW__
  const uint64_t mask = (uint64_t{1} << bytes) - 1;
  if constexpr (kMasked && sizeof(V) == 64) return (V)_mm512_maskz_loadu_epi8(mask, from);
  if constexpr (kMasked && sizeof(V) == 32) return (V)_mm256_maskz_loadu_epi8(mask, from);
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
  if constexpr (kMasked && sizeof(V) == 64) {
    return _mm512_mask_storeu_epi8(to, mask, (__m512i)vector);
  }
  if constexpr (kMasked && sizeof(V) == 32) {
    return _mm256_mask_storeu_epi8(to, mask, (__m256i)vector);
  }
#endif
  __builtin_memcpy(to, &vector, bytes);
}

// `value` in every lane. Subtracting keeps the sign of a zero, adding would not.
template <typename V, typename T>
RUEDA_INLINE V broadcast(T value) {
  return value - V{};
}

using Floats = Vector<float, kVectorBytes / 4>;
using Words = Vector<uint32_t, kVectorBytes / 4>;

// Accumulators of elements 0, 2, 4, ... and of 1, 3, 5, ...: 16-bit elements are widened and
// narrowed within their 32-bit lane, without moves between lanes.
struct FloatPair {
  Floats even;
  Floats odd;
};
RUEDA_INLINE FloatPair operator*(FloatPair a, FloatPair b) {
  return {a.even * b.even, a.odd * b.odd};
}

}  // namespace
}  // namespace rueda::shm
