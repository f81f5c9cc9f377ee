// SPDX-License-Identifier: Apache-2.0
#pragma once

// The only place where a peer's numbers become an address. Pure.

#include <cstdint>

namespace rueda::shm {

// True if [offset, offset + length) lies inside `total` bytes; no overflow for any values.
constexpr bool inBounds(uint64_t offset, uint64_t length, uint64_t total) {
  return offset <= total && length <= total - offset;
}

struct Region {
  char* base = nullptr;
  uint64_t bytes = 0;

  // The address of [offset, offset + length), or nullptr if that is not inside the region.
  char* at(uint64_t offset, uint64_t length) const {
    return inBounds(offset, length, bytes) ? base + offset : nullptr;
  }
};

}  // namespace rueda::shm
