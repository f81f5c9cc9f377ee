// SPDX-License-Identifier: Apache-2.0
#include "shm/check.h"

#include <cstdio>
#include <cstdlib>

namespace rueda::shm {

void checkFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "rueda: %s:%d: check failed: %s\n", file, line, condition);
  std::abort();
}

}  // namespace rueda::shm
