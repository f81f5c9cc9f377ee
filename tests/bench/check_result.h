// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is wrong with the result of a collective in which every element of rank r was r + 1.

#include <cstddef>
#include <string>

namespace rueda::bench {

// Empty when block r of `values`, of `count` floats each, holds r + 1 throughout: what rank r gave.
inline std::string wrongBlocks(const float* values, size_t count, int blocks) {
  for (int block = 0; block < blocks; ++block) {
    for (size_t i = 0; i < count; ++i) {
      const float got = values[size_t(block) * count + i];
      if (got != float(block + 1)) {
        return "wrong value in block " + std::to_string(block) + " at element " +
               std::to_string(i) + ": " + std::to_string(got);
      }
    }
  }
  return "";
}

// Empty when all of `values` is `wanted`.
inline std::string wrongValues(const float* values, size_t count, float wanted) {
  for (size_t i = 0; i < count; ++i) {
    if (values[i] != wanted) {
      return "wrong value at element " + std::to_string(i) + ": " + std::to_string(values[i]);
    }
  }
  return "";
}

}  // namespace rueda::bench
