// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/log.h"

#include <catch2/catch.hpp>

#include "tests/kit/capture_stderr.h"

namespace {

using rueda::base::initLog;
using rueda::base::LogLevel;
using rueda::base::printable;
using rueda::base::RateLimit;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::string linesAt(LogLevel level, bool journal) {
  initLog(level, journal);
  rueda::kit::CaptureStderr capture;
  rueda::base::logDebug("d");
  rueda::base::logInfo("i");
  rueda::base::logWarning("w {}");  // Not a format: clients' names may hold anything.
  rueda::base::logError("e");
  return capture.text();
}

}  // namespace

TEST_CASE("lines below the level are not written") {
  CHECK(linesAt(LogLevel::kDebug, true) == "debug d\ninfo i\nwarning w {}\nerror e\n");
  CHECK(linesAt(LogLevel::kInfo, true) == "info i\nwarning w {}\nerror e\n");
  CHECK(linesAt(LogLevel::kWarning, true) == "warning w {}\nerror e\n");
  CHECK(linesAt(LogLevel::kError, true) == "error e\n");
  CHECK(linesAt(LogLevel::kOff, true) == "");
}

TEST_CASE("outside the journal lines carry their time and process") {
  const std::string text = linesAt(LogLevel::kError, false);
  CHECK_THAT(text,
             Catch::Matches(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3} ruedad\[\d+\] error e\n)"));
}

TEST_CASE("a rate limit lets the first through and counts what it swallows") {
  RateLimit limit(milliseconds(1000));
  const auto start = steady_clock::time_point{} + std::chrono::hours(1);
  uint64_t suppressed = 99;
  CHECK(limit.allow(start, &suppressed));
  CHECK(suppressed == 0);
  CHECK_FALSE(limit.allow(start, &suppressed));
  CHECK_FALSE(limit.allow(start + milliseconds(999), &suppressed));
  CHECK(limit.allow(start + milliseconds(1000), &suppressed));
  CHECK(suppressed == 2);
  CHECK_FALSE(limit.allow(start + milliseconds(1001), &suppressed));
}

TEST_CASE("text of clients cannot break lines or fill them") {
  CHECK(printable("") == "");
  CHECK(printable("layer.1/weight \xc3\xa9") == "layer.1/weight \xc3\xa9");
  CHECK(printable(std::string("a\n\t\x1b[0m\x7f\0z", 9)) == "a\\x0a\\x09\\x1b[0m\\x7f\\x00");
  CHECK(printable(std::string(200, 'x')) == std::string(200, 'x'));
  CHECK(printable(std::string(201, 'x')) == std::string(200, 'x') + "...");
  CHECK(printable(std::string(5000, '\n')).size() < 210);
}
