// SPDX-License-Identifier: Apache-2.0
#include "shm/copy.h"

#include <catch2/catch.hpp>
#include <numeric>
#include <vector>

TEST_CASE("a copy has the bytes of its source and touches nothing else") {
  const size_t bytes = GENERATE(size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{100003});
  const size_t offset = GENERATE(size_t{0}, size_t{13});
  std::vector<unsigned char> from(bytes + 64);
  std::iota(from.begin(), from.end(), 1);
  std::vector<unsigned char> to(bytes + 64, 7);
  rueda::shm::copyLarge(to.data() + offset, from.data() + 3, bytes);
  std::vector<unsigned char> expected(bytes + 64, 7);
  std::copy_n(from.begin() + 3, bytes, expected.begin() + static_cast<long>(offset));
  CHECK(to == expected);
}
