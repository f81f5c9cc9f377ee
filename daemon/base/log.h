// SPDX-License-Identifier: Apache-2.0
#pragma once

// Log lines to stderr, which systemd hands to the journal. Any thread. One line per event of a
// job's life, never one per operation; repeated lines go through RateLimit.

#include <chrono>
#include <cstdint>
#include <string>

#include "daemon/base/printable.h"

namespace rueda::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// Once, before the first line. `journal`: no time stamps, the journal has its own.
void initLog(LogLevel level, bool journal);

void logDebug(const std::string& text);
void logInfo(const std::string& text);
void logWarning(const std::string& text);
void logError(const std::string& text);

// At most one line per `interval` from one place; counts what it swallowed. One thread.
class RateLimit {
 public:
  explicit RateLimit(std::chrono::milliseconds interval) : interval_(interval) {}
  // True if the line may be written; then *suppressed is the number swallowed since the last one.
  bool allow(std::chrono::steady_clock::time_point now, uint64_t* suppressed);

 private:
  std::chrono::milliseconds interval_;
  std::chrono::steady_clock::time_point next_;
  uint64_t suppressed_ = 0;
};

}  // namespace rueda::base
