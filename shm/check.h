// SPDX-License-Identifier: Apache-2.0
#pragma once

// Own bugs abort with file, line and the broken condition, in release builds too. Never used on
// bytes that come from a peer: those are answered with a Status.

namespace rueda::shm {
[[noreturn]] void checkFailed(const char* file, int line, const char* condition);
}  // namespace rueda::shm

#define RUEDA_CHECK(condition)                       \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::rueda::shm::checkFailed(__FILE__, __LINE__, #condition))

#ifdef NDEBUG
#define RUEDA_DCHECK(condition) static_cast<void>(sizeof(condition))
#else
#define RUEDA_DCHECK(condition) RUEDA_CHECK(condition)
#endif
