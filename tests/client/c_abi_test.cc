// SPDX-License-Identifier: Apache-2.0

// librueda.so and rueda.h as other programs meet them: what is exported and needed, that the header
// compiles, and that wrong arguments, structs of other versions and forks end in codes.

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "client/c/rueda.h"
#include "tests/kit/child.h"
#include "tests/kit/daemon_fixture.h"

namespace {

using rueda::kit::DaemonFixture;
using Names = std::set<std::string>;

// Callers were compiled with these numbers: a change needs fields at the end and a new version.
static_assert(RUEDA_ABI_VERSION == 3);
static_assert(sizeof(rueda_options) == 1616 && offsetof(rueda_options, socket) == 28);
static_assert(offsetof(rueda_options, start_timeout_ms) == 520);
static_assert(sizeof(rueda_op) == 112 && offsetof(rueda_op, name) == 8);
static_assert(offsetof(rueda_op, ndim) == 40 && offsetof(rueda_op, prescale) == 48);
static_assert(offsetof(rueda_op, output_bytes) == 80 && offsetof(rueda_op, received) == 96);
static_assert(sizeof(rueda_gathered) == 32 && offsetof(rueda_gathered, data) == 8);

struct Outcome {
  int status = -1;
  std::string output;
};

// Runs a command of the shell; standard output and error together.
Outcome shell(const std::string& command) {
  Outcome outcome;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> buffer;
  for (size_t got = 0; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.output.append(buffer.data(), got);
  outcome.status = ::pclose(pipe);
  return outcome;
}

std::string textOf(const char* path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// The first group of every match.
Names matches(const std::string& text, const char* pattern) {
  const std::regex regex(pattern);
  Names found;
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    found.insert((*it)[1]);
  return found;
}

rueda_options optionsOf(const DaemonFixture& daemon, int rank, int size, const char* job = "job") {
  rueda_options options{};
  options.struct_size = sizeof options;
  options.rank = options.local_rank = rank;
  options.size = options.local_size = size;
  std::snprintf(options.socket, sizeof options.socket, "%s", daemon.socket().c_str());
  std::snprintf(options.job, sizeof options.job, "%s", job);
  return options;
}

rueda_op allreduceOf(const char* name, float* value) {
  rueda_op op{};
  op.struct_size = sizeof op;
  op.kind = RUEDA_ALLREDUCE;
  op.dtype = RUEDA_FLOAT32;
  op.reduce_op = RUEDA_SUM;
  op.name = name;
  op.input = op.output = value;
  return op;
}

// The two ranks of a job, both in this process.
class Job {
 public:
  Job() {
    std::thread other([this] { codes_[1] = open(1); });
    codes_[0] = open(0);
    other.join();
  }
  ~Job() {
    for (rueda_session* session : sessions_) rueda_close(session);
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  bool isOpen() const { return codes_[0] == RUEDA_OK && codes_[1] == RUEDA_OK; }
  rueda_session* rank(size_t rank) const { return sessions_[rank]; }
  DaemonFixture& daemon() { return daemon_; }
  // Of the sum of 1 and 2, on both ranks; RUEDA_INTERNAL for another result.
  int32_t sum() {
    int32_t other = RUEDA_INTERNAL;
    std::thread thread([&] { other = sumOf(1); });
    const int32_t mine = sumOf(0);
    thread.join();
    return mine == RUEDA_OK ? other : mine;
  }

 private:
  int32_t open(int rank) {
    const rueda_options options = optionsOf(daemon_, rank, 2);
    return rueda_open(&options, &sessions_[static_cast<size_t>(rank)]);
  }
  int32_t sumOf(size_t rank) {
    float value = static_cast<float>(rank + 1);
    const rueda_op op = allreduceOf("sum", &value);
    const int32_t code = rueda_run(sessions_[rank], &op);
    return code == RUEDA_OK && value != 3 ? RUEDA_INTERNAL : code;
  }

  DaemonFixture daemon_;
  std::array<rueda_session*, 2> sessions_{};
  std::array<int32_t, 2> codes_{{RUEDA_INTERNAL, RUEDA_INTERNAL}};
};

// A job of one rank.
class Alone {
 public:
  Alone() {
    const rueda_options options = optionsOf(daemon_, 0, 1);
    (void)rueda_open(&options, &session_);
  }
  ~Alone() { rueda_close(session_); }
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

  rueda_session* session() const { return session_; }
  DaemonFixture& daemon() { return daemon_; }

 private:
  DaemonFixture daemon_;
  rueda_session* session_ = nullptr;
};

// Codes of every call that takes a session, with arguments that are fine otherwise.
std::vector<int32_t> callAll(rueda_session* session) {
  float value = 1;
  void* pointer = nullptr;
  int32_t done = 0;
  rueda_handle handle = 0;
  rueda_gathered gathered{};
  gathered.struct_size = sizeof gathered;
  const rueda_op op = allreduceOf("x", &value);
  return {rueda_health(session),
          rueda_alloc(session, 64, &pointer),
          rueda_free(session, &value),
          rueda_run(session, &op),
          rueda_submit(session, &op, 1, &handle),
          rueda_poll(session, 1, &done),
          rueda_wait(session, 1, 1),
          rueda_gather_result(session, 1, &gathered),
          rueda_release(session, 1)};
}

bool areAll(const std::vector<int32_t>& codes, int32_t code) {
  return std::all_of(codes.begin(), codes.end(), [&](int32_t each) { return each == code; });
}

}  // namespace

TEST_CASE("librueda.so exports the calls of rueda.h and nothing else") {
  const Names declared =
      matches(textOf("client/c/rueda.h"), "\nRUEDA_API [^;(]*?\\b(rueda_[a-z_]+)\\(");
  const Names listed = matches(textOf("client/c/exports.lds"), "\n    (rueda_[a-z_]+);");
  const Outcome nm = shell("nm -D --defined-only client/c/librueda.so");
  REQUIRE(nm.status == 0);
  CHECK(declared.size() >= 20);
  CHECK(listed == declared);
  CHECK(matches(nm.output, "[0-9a-f]+ [A-Za-z] (\\S+)\n") == declared);
}

TEST_CASE("librueda.so needs nothing but the C and C++ run-time libraries") {
  const Outcome ldd = shell("ldd client/c/librueda.so");
  REQUIRE(ldd.status == 0);
  const Names needed = matches(ldd.output, "\\s(?:/\\S*/)?([^\\s/]+\\.so[^\\s]*)(?= )");
  CHECK(needed.size() >= 2);
  const std::regex allowed(
      "(linux-vdso|ld-linux[-a-z0-9_]*|lib(c|m|stdc\\+\\+|gcc_s|pthread|rt|dl))\\.so(\\.[0-9]+)*");
  for (const std::string& library : needed) {
    INFO(library);
    CHECK(std::regex_match(library, allowed));
  }
}

TEST_CASE("rueda.h compiles as C11 and as C++17 without a warning") {
  const std::string source =
      "printf '%s\\n' '#include \"client/c/rueda.h\"' 'int main(void) {' "
      "'  rueda_op op = {sizeof(rueda_op), RUEDA_BARRIER, RUEDA_FLOAT32, RUEDA_SUM, 0, \"b\", 0, "
      "0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};' '  return (int)rueda_run(0, &op);' '}' | ";
  const char* compiler =
      GENERATE("gcc -std=c11 -x c", "g++ -std=c++17 -x c++", "clang-14 -std=c11 -x c");
  const std::string flags = " -pedantic -Wall -Wextra -Werror -fsyntax-only -I. -";
  const Outcome compiled = shell(source + compiler + flags);
  INFO(compiler << ": " << compiled.output);
  CHECK(compiled.status == 0);
}

TEST_CASE("calls that need no session answer without one") {
  CHECK(rueda_abi_version() == RUEDA_ABI_VERSION);
  CHECK(std::string(rueda_version()).size() >= 5);
  CHECK(std::string(rueda_code_name(RUEDA_RANK_LOST)) == "rank lost");
  CHECK(rueda_code_name(-1) != nullptr);
  CHECK(rueda_code_name(9999) != nullptr);
  CHECK(rueda_dtype_size(RUEDA_FLOAT64) == 8);
  CHECK(rueda_dtype_size(17) == 0);
  CHECK(rueda_dtype_size(256) == 0);
}

TEST_CASE("without a session every call says so") {
  CHECK(areAll(callAll(nullptr), RUEDA_NOT_INITIALIZED));
  CHECK(std::string(rueda_last_error()).find("rueda_open") != std::string::npos);
  CHECK(rueda_rank(nullptr) == -1);
  CHECK(rueda_size(nullptr) == -1);
  CHECK(rueda_owns(nullptr, rueda_version(), 1) == 0);
  rueda_close(nullptr);
}

TEST_CASE("NULL where a call needs something is an invalid argument") {
  Alone alone;
  rueda_session* const session = alone.session();
  REQUIRE(session != nullptr);
  const rueda_options options = optionsOf(alone.daemon(), 0, 1, "other");
  rueda_session* opened = session;
  CHECK(rueda_options_init(nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_open(nullptr, &opened) == RUEDA_INVALID_ARGUMENT);
  CHECK(opened == nullptr);
  CHECK(rueda_open(&options, nullptr) == RUEDA_INVALID_ARGUMENT);
  float value = 1;
  rueda_handle handle = 0;
  const rueda_op op = allreduceOf("x", &value);
  CHECK(rueda_alloc(session, 64, nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_run(session, nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_submit(session, nullptr, 1, &handle) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_submit(session, &op, 1, nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_poll(session, 1, nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_gather_result(session, 1, nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_owns(session, nullptr, 1) == 0);
  CHECK(rueda_health(session) == RUEDA_OK);
}

TEST_CASE("handles that were never given are invalid arguments") {
  Alone alone;
  int32_t done = 0;
  rueda_gathered gathered{};
  gathered.struct_size = sizeof gathered;
  for (const rueda_handle handle : {rueda_handle{0}, rueda_handle{12345}, ~rueda_handle{0}}) {
    CHECK(rueda_poll(alone.session(), handle, &done) == RUEDA_INVALID_ARGUMENT);
    CHECK(rueda_wait(alone.session(), handle, 1) == RUEDA_INVALID_ARGUMENT);
    CHECK(rueda_gather_result(alone.session(), handle, &gathered) == RUEDA_INVALID_ARGUMENT);
    CHECK(rueda_release(alone.session(), handle) == RUEDA_INVALID_ARGUMENT);
  }
}

TEST_CASE("an operation with a field that makes no sense is an invalid argument") {
  Alone alone;
  REQUIRE(alone.session() != nullptr);
  float value = 1;
  const int64_t negative = -1;
  const int64_t huge[2] = {int64_t{1} << 40, int64_t{1} << 40};
  rueda_op op = allreduceOf("x", &value);
  SECTION("no struct size") { op.struct_size = 0; }
  SECTION("a kind that is unknown, or has a call of its own") { op.kind = GENERATE(6, 9); }
  SECTION("unknown data type") { op.dtype = 17; }
  SECTION("unknown reduction") { op.reduce_op = 6; }
  SECTION("a process set that there is not") { op.process_set = 3; }
  SECTION("no name") { op.name = nullptr; }
  SECTION("no shape") { op.ndim = 1; }
  SECTION("too many dimensions") { op.ndim = 65, op.shape = huge; }
  SECTION("a negative dimension") { op.ndim = 1, op.shape = &negative; }
  SECTION("more elements than memory has bytes") { op.ndim = 2, op.shape = huge; }
  SECTION("no input") { op.input = nullptr; }
  SECTION("no output") { op.output = nullptr; }
  SECTION("a root that is no rank") { op.kind = RUEDA_BROADCAST, op.root = 1; }
  rueda_handle handle = 0;
  CHECK(rueda_run(alone.session(), &op) == RUEDA_INVALID_ARGUMENT);
  CHECK(std::string(rueda_last_error()) != "");
  CHECK(rueda_submit(alone.session(), &op, 1, &handle) == RUEDA_INVALID_ARGUMENT);
  CHECK(handle == 0);
}

TEST_CASE("what an older caller's struct lacks is zero, whatever lies behind it") {
  Job job;
  REQUIRE(job.isOpen());
  const auto old = static_cast<uint32_t>(offsetof(rueda_op, prescale));
  std::array<float, 2> values = {1, 2};
  std::array<int32_t, 2> codes{};
  const auto run = [&](size_t rank) {
    rueda_op op = allreduceOf("x", &values[rank]);
    op.struct_size = old;
    op.prescale = op.postscale = 1000;
    op.scale_set = 1;
    codes[rank] = rueda_run(job.rank(rank), &op);
  };
  std::thread other(run, size_t{1});
  run(0);
  other.join();
  CHECK(codes == std::array<int32_t, 2>{{RUEDA_OK, RUEDA_OK}});
  CHECK(values == std::array<float, 2>{{3, 3}});

  rueda_options options = optionsOf(job.daemon(), 0, 1, "old");
  options.struct_size = offsetof(rueda_options, start_timeout_ms);
  options.interrupted = reinterpret_cast<int (*)(void*)>(1);  // Crashes if it is called.
  rueda_session* session = nullptr;
  CHECK(rueda_open(&options, &session) == RUEDA_OK);
  rueda_close(session);
}

TEST_CASE("what a newer caller's struct has more is ignored") {
  struct LaterOp {
    rueda_op op;
    char more[40];
  };
  struct LaterOptions {
    rueda_options options;
    char more[100];
  };
  DaemonFixture daemon;
  LaterOptions options{};
  std::memset(options.more, 0x5a, sizeof options.more);
  options.options.struct_size = sizeof options;
  REQUIRE(rueda_options_init(&options.options) == RUEDA_OK);
  CHECK(std::count(std::begin(options.more), std::end(options.more), 0x5a) == 100);
  options.options = optionsOf(daemon, 0, 1);
  options.options.struct_size = sizeof options;
  rueda_session* session = nullptr;
  REQUIRE(rueda_open(&options.options, &session) == RUEDA_OK);

  std::array<float, 2> values = {1, 2};
  LaterOp ops[2] = {{allreduceOf("a", &values[0]), {}}, {allreduceOf("b", &values[1]), {}}};
  for (LaterOp& op : ops) {
    op.op.struct_size = sizeof op;
    op.op.scale_set = 1;
    op.op.prescale = 10;
    op.op.postscale = 1;
    std::memset(op.more, 0x5a, sizeof op.more);
  }
  rueda_handle handles[2] = {};
  CHECK(rueda_submit(session, &ops[0].op, 2, handles) == RUEDA_OK);
  for (const rueda_handle handle : handles) CHECK(rueda_wait(session, handle, 10000) == RUEDA_OK);
  CHECK(values == std::array<float, 2>{{10, 20}});
  rueda_close(session);
}

TEST_CASE("a wait that runs out keeps its handle") {
  Job job;
  REQUIRE(job.isOpen());
  float values[2] = {1, 2};
  rueda_handle handles[2] = {};
  for (size_t rank = 0; rank < 2; ++rank) {
    const rueda_op op = allreduceOf("late", &values[rank]);
    REQUIRE(rueda_submit(job.rank(rank), &op, 1, &handles[rank]) == RUEDA_OK);
    if (rank == 0) CHECK(rueda_wait(job.rank(0), handles[0], 5) == RUEDA_DEADLINE_EXCEEDED);
  }
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(rueda_wait(job.rank(rank), handles[rank], 10000) == RUEDA_OK);
    CHECK(values[rank] == 3);
    CHECK(rueda_wait(job.rank(rank), handles[rank], 1) == RUEDA_INVALID_ARGUMENT);
  }
}

TEST_CASE("a forked child neither uses nor ends the session of its parent") {
  Job job;
  REQUIRE(job.isOpen());
  REQUIRE(job.sum() == RUEDA_OK);
  const rueda_options options = optionsOf(job.daemon(), 0, 1, "child");
  rueda::kit::Child child([&] {
    if (!areAll(callAll(job.rank(0)), RUEDA_NOT_INITIALIZED)) return 1;
    if (std::strstr(rueda_last_error(), "forked") == nullptr) return 2;
    if (rueda_owns(job.rank(0), &options, 1) != 0) return 3;
    rueda_close(job.rank(0));
    rueda_close(job.rank(1));
    rueda_session* own = nullptr;
    if (rueda_open(&options, &own) != RUEDA_OK) return 4;
    if (rueda_health(own) != RUEDA_OK) return 5;
    rueda_close(own);
    return 0;
  });
  CHECK(child.wait() == 0);
  CHECK(job.sum() == RUEDA_OK);
  CHECK(rueda_health(job.rank(0)) == RUEDA_OK);
  CHECK(rueda_health(job.rank(1)) == RUEDA_OK);
}
