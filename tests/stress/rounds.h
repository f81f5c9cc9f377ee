// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much a stress test does: about a second's worth, or STRESS_FACTOR times as much, as in
// `bazel test --test_env=STRESS_FACTOR=20 --test_arg=--rng-seed --test_arg=time
// //tests/stress/...`. A case may not take more than 50 s (tests/main.cc). Any thread.

#include <algorithm>
#include <cstdlib>

namespace rueda::stress {

inline int rounds(int forASecond) {
  const char* factor = std::getenv("STRESS_FACTOR");
  return forASecond * std::clamp(factor == nullptr ? 1 : std::atoi(factor), 1, 1000);
}

}  // namespace rueda::stress
