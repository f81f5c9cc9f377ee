// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which rows of a first dimension are for whom. Both sides of the ring count so. Pure; any thread.

#include <cstdint>

namespace rueda::shm {

struct RowRange {
  uint64_t begin = 0;
  uint64_t count = 0;
};

// Of a reducescatter over `rows` rows: the first rows % size ranks get one more than the others.
// REQUIRES: size >= 1, 0 <= rank < size.
constexpr RowRange scatteredRows(uint64_t rows, int size, int rank) {
  const auto ranks = static_cast<uint64_t>(size);
  const auto number = static_cast<uint64_t>(rank);
  const uint64_t each = rows / ranks;
  const uint64_t more = rows % ranks;
  return {number * each + (number < more ? number : more), each + (number < more ? 1 : 0)};
}

}  // namespace rueda::shm
