// SPDX-License-Identifier: Apache-2.0
#include "daemon/config.h"

#include <stdlib.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/kit/temp_dir.h"

using rueda::daemon::Config;
using rueda::daemon::parseConfig;
using rueda::shm::Code;

namespace {

// An environment variable for the length of a test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

Config parsed(const std::vector<std::string>& arguments) {
  std::string help;
  const auto config = parseConfig(arguments, &help);
  INFO(config.status().message());
  REQUIRE(config.isOk());
  return config.value();
}

std::string refusal(const std::vector<std::string>& arguments) {
  std::string help;
  const auto config = parseConfig(arguments, &help);
  REQUIRE_FALSE(config.isOk());
  REQUIRE(config.status().code() == Code::kInvalidArgument);
  return config.status().message();
}

std::string write(const rueda::kit::TempDir& dir, const std::string& text) {
  const std::string path = dir.path() + "/ruedad.yaml";
  std::ofstream(path) << text;
  return path;
}

}  // namespace

TEST_CASE("without settings the defaults hold") {
  const Config config = parsed({});
  REQUIRE(config.socket == "/run/rueda/rueda.sock");
  REQUIRE(config.handshakeTimeoutMs == 2000);
  REQUIRE_FALSE(config.isPrivate);
}

TEST_CASE("a flag wins over the environment, the environment over the file") {
  rueda::kit::TempDir dir;
  const std::string path = write(dir, "workers: 3\nstall_warn_ms: 500\nmax_sessions: 7\n");
  const Variable workers("RUEDAD_WORKERS", "2");
  const Variable stall("RUEDAD_STALL_WARN_MS", "700");
  const Config config = parsed({"--config", path, "--workers", "1"});
  REQUIRE(config.workers == 1);
  REQUIRE(config.stallWarnMs == 700);
  REQUIRE(config.maxSessions == 7);
}

TEST_CASE("the file may be named by the environment") {
  rueda::kit::TempDir dir;
  const std::string path = write(dir, "workers: 3\n");
  const Variable file("RUEDAD_CONFIG", path.c_str());
  REQUIRE(parsed({}).workers == 3);
}

TEST_CASE("a value out of range is refused with setting, value, range and source") {
  REQUIRE(
      refusal({"--workers", "65"}) ==
      "command line: workers = '65' is not valid: reduction threads; 0: cores, at most 4 (0..64)");
  const Variable variable("RUEDAD_HANDSHAKE_TIMEOUT_MS", "49");
  REQUIRE(refusal({}).find(
              "environment RUEDAD_HANDSHAKE_TIMEOUT_MS: handshake-timeout-ms = '49'") == 0);
}

TEST_CASE("values that are no numbers are refused") {
  const auto value = GENERATE(as<std::string>(), "", "-1", "1.5", "0x10", "1e3", " 1", "1 ", "abc",
                              "99999999999999999999999");
  REQUIRE_FALSE(refusal({"--workers=" + value}).empty());
}

TEST_CASE("switches take 0, 1, true, false, or stand alone") {
  REQUIRE(parsed({"--private"}).isPrivate);
  REQUIRE(parsed({"--private", "1"}).isPrivate);
  REQUIRE_FALSE(parsed({"--private", "false"}).isPrivate);
  REQUIRE_FALSE(refusal({"--private", "yes"}).empty());
}

TEST_CASE("a broken file is refused with line and column") {
  rueda::kit::TempDir dir;
  const std::string path = write(dir, "workers: 1\nsocket: [\n");
  REQUIRE(refusal({"--config", path}).find(path + " line ") == 0);
}

TEST_CASE("an unknown setting in the file is refused with its line") {
  rueda::kit::TempDir dir;
  const std::string path = write(dir, "workers: 1\nworkres: 2\n");
  REQUIRE(refusal({"--config", path}) == path + " line 2: no setting is called 'workres'");
}

TEST_CASE("files of other shapes are refused, an empty one is none") {
  rueda::kit::TempDir dir;
  REQUIRE_FALSE(refusal({"--config", write(dir, "- a\n- b\n")}).empty());
  REQUIRE_FALSE(refusal({"--config", write(dir, "workers: [1, 2]\n")}).empty());
  REQUIRE_FALSE(refusal({"--config", dir.path() + "/missing.yaml"}).empty());
  REQUIRE(parsed({"--config", write(dir, "")}).workers == 0);
}

TEST_CASE("a lifeline is for private daemons only") {
  REQUIRE(refusal({"--lifeline-fd", "3"}) == "lifeline-fd needs private = 1");
  REQUIRE(parsed({"--lifeline-fd", "3", "--private"}).lifelineFd == 3);
}

TEST_CASE("unknown flags are refused, help lists every setting and the exit codes") {
  REQUIRE_FALSE(refusal({"--no-such-flag"}).empty());
  std::string help;
  REQUIRE(parseConfig({"--help"}, &help).isOk());
  for (const char* word :
       {"--socket", "--stall-shutdown-seconds", "--isolated", "RUEDAD_", "Exit codes"})
    REQUIRE(help.find(word) != std::string::npos);
}

TEST_CASE("every setting is described with its value") {
  const std::string text = parsed({"--workers", "2", "--log-level", "error"}).describe();
  REQUIRE(text.find("workers = 2\n") != std::string::npos);
  REQUIRE(text.find("log-level = error\n") != std::string::npos);
}
