// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace rueda::base {
namespace {

spdlog::level::level_enum toSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::info;
}

}  // namespace

void initLog(LogLevel level, bool journal) {
  auto logger =
      std::make_shared<spdlog::logger>("ruedad", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(toSpdlog(level));
  logger->set_pattern(journal ? "%l %v" : "%Y-%m-%dT%H:%M:%S.%e ruedad[%P] %l %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void logDebug(const std::string& text) { spdlog::debug("{}", text); }
void logInfo(const std::string& text) { spdlog::info("{}", text); }
void logWarning(const std::string& text) { spdlog::warn("{}", text); }
void logError(const std::string& text) { spdlog::error("{}", text); }

bool RateLimit::allow(std::chrono::steady_clock::time_point now, uint64_t* suppressed) {
  if (now < next_) {
    ++suppressed_;
    return false;
  }
  next_ = now + interval_;
  *suppressed = std::exchange(suppressed_, 0);
  return true;
}

}  // namespace rueda::base
