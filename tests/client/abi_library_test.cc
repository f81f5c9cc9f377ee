// SPDX-License-Identifier: Apache-2.0

// librueda.so and rueda.h as files: what they export, what they need, and that C programs of others
// compile and run with them.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include "tests/kit/temp_dir.h"

namespace {

const char kLibrary[] = "client/c/librueda.so";
const char kHeader[] = "client/c/rueda.h";
const char kExports[] = "client/c/exports.lds";

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

std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::set<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::set<std::string> found;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex);
       it != std::sregex_iterator(); ++it)
    found.insert((*it)[1]);
  return found;
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

TEST_CASE("the library exports the calls of its header, and nothing else") {
  const auto declared = matches(read(kHeader), R"(RUEDA_API [^;(]*?(rueda_\w+)\()");
  const auto listed = matches(read(kExports), R"((rueda_\w+);)");
  const Ran nm = run("nm -D --defined-only " + std::string(kLibrary));
  REQUIRE(nm.status == 0);
  const auto exported = matches(nm.output, R"([0-9a-f]+ [A-Za-z] (\S+))");
  CHECK(declared.size() == 20);
  CHECK(declared == listed);
  CHECK(declared == exported);
}

TEST_CASE("the library needs the C and C++ run-times only") {
  const Ran needs = run("readelf -d " + std::string(kLibrary));
  REQUIRE(needs.status == 0);
  const auto libraries = matches(needs.output, R"(NEEDED[^\[]*\[([^\]]+)\])");
  const std::set<std::string> allowed = {"libc.so.6",      "libm.so.6",           "libgcc_s.so.1",
                                         "libstdc++.so.6", "libpthread.so.0",     "librt.so.1",
                                         "libdl.so.2",     "ld-linux-x86-64.so.2"};
  CHECK_FALSE(libraries.empty());
  for (const std::string& library : libraries) {
    INFO(library);
    CHECK(allowed.count(library) == 1);
  }
  CHECK_THAT(needs.output, Catch::Contains("Library soname: [librueda.so]"));
}

TEST_CASE("the header compiles alone, as C11 and as C++17, with every warning an error") {
  const std::string flags = " -Wall -Wextra -Wpedantic -Werror -fsyntax-only ";
  const Ran c = run("gcc -std=c11 -x c" + flags + kHeader);
  CHECK(c.output == "");
  CHECK(c.status == 0);
  const Ran cpp = run("g++ -std=c++17 -x c++" + flags + kHeader);
  CHECK(cpp.output == "");
  CHECK(cpp.status == 0);
}

TEST_CASE("a C program builds against header and library, and runs") {
  const rueda::kit::TempDir dir;
  std::ofstream(dir.file("program.c")) << kProgram;
  const std::string build = "gcc -std=c11 -Wall -Wextra -Wpedantic -Werror -I. -o " +
                            dir.file("program") + " " + dir.file("program.c") + " " + kLibrary +
                            " -Wl,-rpath," + here() + "/client/c";
  const Ran built = run(build);
  REQUIRE(built.output == "");
  CHECK(run(dir.file("program")).status == 0);
}
