// SPDX-License-Identifier: Apache-2.0
#pragma once

// Vectors as wide as the compiler's flags allow, and pairs of them. First of the reduce_*.h files
// that each reduce_kernels_<isa>.cc compiles with its own flags.
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

using Floats = Vector<float, kVectorBytes / 4>;
using Words = Vector<uint32_t, kVectorBytes / 4>;

// Accumulators of the elements in the lower and in the upper half of each 32-bit lane, or of such a
// half: narrow elements are widened and narrowed within their lane. (gcc 12 converts a vector of
// bytes to words one by one: less than half as fast.)
template <typename Half>
struct Pair {
  Half low;
  Half high;
};
using FloatPair = Pair<Floats>;     // Of 16-bit elements.
using FloatQuad = Pair<FloatPair>;  // Of 8-bit elements.
template <typename V>
constexpr bool kIsPair = false;
template <typename Half>
constexpr bool kIsPair<Pair<Half>> = true;

template <typename Half>
RUEDA_INLINE Pair<Half> operator*(Pair<Half> a, Pair<Half> b) {
  return {a.low * b.low, a.high * b.high};
}

}  // namespace
}  // namespace rueda::shm
