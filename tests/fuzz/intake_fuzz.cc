// SPDX-License-Identifier: Apache-2.0

// libFuzzer target of the border function of the submission ring; run it by tests/fuzz/run.

#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/borders.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string wrong = rueda::fuzz::checkIntake(data, size);
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "accepted what it must not: %s\n", wrong.c_str());
  std::abort();
}
