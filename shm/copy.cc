// SPDX-License-Identifier: Apache-2.0
#include "shm/copy.h"

#include <cpuid.h>

#include <cstring>

namespace rueda::shm {
namespace {

constexpr size_t kLargeFrom = 4096;  // Below, starting the instruction costs more than it gains.

// "Enhanced rep movsb": bit 9 of leaf 7. Without it the instruction copies byte by byte.
bool hasFastRep() {
  constexpr unsigned kErms = 1u << 9;
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kErms) != 0;
}

}  // namespace

void copyLarge(void* to, const void* from, size_t bytes) {
  static const bool isFast = hasFastRep();
  if (!isFast || bytes < kLargeFrom) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

}  // namespace rueda::shm
