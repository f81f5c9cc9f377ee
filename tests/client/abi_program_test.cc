// SPDX-License-Identifier: Apache-2.0

// A C program of others, built against rueda.h and librueda.so and run.
#include <stdio.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/kit/temp_dir.h"

namespace {

struct Ran {
  int status = -1;
  std::string output;
};

Ran run(const std::string& command) {
  Ran ran;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  char buffer[4096];
  for (size_t got; (got = ::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    ran.output.append(buffer, got);
  ran.status = ::pclose(pipe);
  return ran;
}

std::string here() {
  char path[4096] = {};
  return ::getcwd(path, sizeof path) != nullptr ? path : "";
}

// A program that needs nothing but the public header.
constexpr char kProgram[] = R"(
#include <string.h>
#include "client/c/rueda.h"
int main(void) {
  rueda_options options;
  rueda_session* session = 0;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  if (rueda_abi_version() != RUEDA_ABI_VERSION) return 1;
  if (rueda_options_init(&options) != RUEDA_OK) return 2;
  strcpy(options.socket, "/nowhere");
  if (rueda_open(&options, &session) != RUEDA_UNAVAILABLE) return 3;
  rueda_close(session);
  return rueda_last_error()[0] == 0 ? 4 : 0;
}
)";

}  // namespace

TEST_CASE("a C program builds against header and library, and runs") {
  const rueda::kit::TempDir dir;
  std::ofstream(dir.file("program.c")) << kProgram;
  const std::string build = "gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -I. -o " +
                            dir.file("program") + " " + dir.file("program.c") +
                            " client/c/librueda.so" + " -Wl,-rpath," + here() + "/client/c";
  const Ran built = run(build);
  REQUIRE(built.output == "");
  CHECK(run(dir.file("program")).status == 0);
}
