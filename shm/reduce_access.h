// SPDX-License-Identifier: Apache-2.0
#pragma once

// Unaligned and partial access to vectors and pairs in memory. Compiled once per instruction set,
// see reduce_vector.h.

#include "shm/reduce_vector.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// A pair by its halves: gcc 12 copies it as a whole in pieces of 16 bytes, and the next load of a
// vector waits for them: sums of 16 arrays of bfloat16 with AVX2 then take 3.4 times as long.
template <typename V>
RUEDA_INLINE V load(const char* from) {
  if constexpr (kIsPair<V>) {
    using Half = decltype(V::low);
    return {load<Half>(from), load<Half>(from + sizeof(Half))};
  } else {
    V vector;
    __builtin_memcpy(&vector, from, sizeof(V));
    return vector;
  }
}

template <typename V>
RUEDA_INLINE void store(char* to, V vector) {
  if constexpr (kIsPair<V>) {
    store(to, vector.low);
    store(to + sizeof vector.low, vector.high);
  } else {
    __builtin_memcpy(to, &vector, sizeof(V));
  }
}

template <int kBytes>
RUEDA_INLINE void prefetch(const char* from) {
  constexpr int kLine = 64;
  unroll<(kBytes + kLine - 1) / kLine>(
      [&](int line) RUEDA_INLINE_LAMBDA { __builtin_prefetch(from + line * kLine); });
}

// The first `bytes` bytes from memory, zeros after. The lanes of a pair are out of order, so a part
// of one is kept whole: blocks have room for that. REQUIRES: 0 < bytes < sizeof(V).
template <typename V>
RUEDA_INLINE V loadPartial(const char* from, size_t bytes) {
  if constexpr (kIsPair<V>) return load<V>(from);
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
  if constexpr (kIsPair<V>) return store(to, vector);
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
  if constexpr (kIsPair<V>) {
    const auto half = broadcast<decltype(V::low)>(value);
    return {half, half};
  } else {
    return value - V{};
  }
}

}  // namespace
}  // namespace rueda::shm
