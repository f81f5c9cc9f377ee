// SPDX-License-Identifier: Apache-2.0

// The C ABI, call by call, against a daemon in this process.
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <thread>

#include "client/c/rueda.h"
#include "tests/kit/child.h"
#include "tests/kit/daemon_fixture.h"

namespace {

using rueda::kit::Child;
using rueda::kit::DaemonFixture;

struct Closer {
  void operator()(rueda_session* session) const { rueda_close(session); }
};
using Session = std::unique_ptr<rueda_session, Closer>;

rueda_options optionsOf(const DaemonFixture& daemon, int rank = 0, int size = 1) {
  rueda_options options{};
  options.struct_size = sizeof options;
  options.rank = options.local_rank = rank;
  options.size = options.local_size = size;
  std::strcpy(options.socket, daemon.socket().c_str());
  return options;
}

Session open(const rueda_options& options) {
  rueda_session* session = nullptr;
  (void)rueda_open(&options, &session);
  return Session(session);
}

rueda_op sum(const char* name, float* value, const int64_t* shape, uint32_t ndim) {
  rueda_op op{};
  op.struct_size = sizeof op;
  op.kind = RUEDA_ALLREDUCE;
  op.dtype = RUEDA_FLOAT32;
  op.reduce_op = RUEDA_SUM;
  op.name = name;
  op.input = op.output = value;
  op.shape = shape;
  op.ndim = ndim;
  return op;
}

std::string lastError() { return rueda_last_error(); }

}  // namespace

TEST_CASE("the library names itself, its codes and its types without a session") {
  CHECK(rueda_abi_version() == RUEDA_ABI_VERSION);
  CHECK(std::string(rueda_version()) == "0.1.0");
  CHECK(std::string(rueda_code_name(RUEDA_RANK_LOST)) == "rank lost");
  CHECK(std::string(rueda_code_name(99)) == "unknown code");
  CHECK(rueda_dtype_size(RUEDA_BFLOAT16) == 2);
  CHECK(rueda_dtype_size(RUEDA_FLOAT64) == 8);
  CHECK(rueda_dtype_size(11) == 0);
  CHECK(rueda_dtype_size(256) == 0);
  CHECK(rueda_dtype_size(0xffffffff) == 0);
}

TEST_CASE("no call takes NULL for a session, and closing one is nothing") {
  rueda_session* const none = nullptr;
  float value = 0;
  const rueda_op op = sum("x", &value, nullptr, 0);
  rueda_handle handle = 0;
  int32_t done = 0;
  void* pointer = &value;
  rueda_gathered gathered{};
  gathered.struct_size = sizeof gathered;
  rueda_close(none);
  CHECK(rueda_rank(none) == -1);
  CHECK(rueda_size(none) == -1);
  CHECK(rueda_health(none) == RUEDA_NOT_INITIALIZED);
  CHECK(rueda_alloc(none, 1, &pointer) == RUEDA_NOT_INITIALIZED);
  CHECK(pointer == nullptr);
  CHECK(rueda_free(none, &value) == RUEDA_NOT_INITIALIZED);
  CHECK(rueda_owns(none, &value, 1) == 0);
  CHECK(rueda_run(none, &op) == RUEDA_NOT_INITIALIZED);
  CHECK(rueda_submit(none, &op, 1, &handle) == RUEDA_NOT_INITIALIZED);
  CHECK(rueda_poll(none, 1, &done) == RUEDA_NOT_INITIALIZED);
  CHECK(rueda_wait(none, 1, 0) == RUEDA_NOT_INITIALIZED);
  CHECK(rueda_gather_result(none, 1, &gathered) == RUEDA_NOT_INITIALIZED);
  CHECK(rueda_release(none, 1) == RUEDA_NOT_INITIALIZED);
  CHECK(lastError() == "no session: rueda_open has not succeeded");
}

TEST_CASE("every other pointer may be NULL too, and is an argument that is wrong") {
  DaemonFixture daemon;
  const rueda_options options = optionsOf(daemon);
  const Session session = open(options);
  REQUIRE(session != nullptr);
  CHECK(rueda_options_init(nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_open(&options, nullptr) == RUEDA_INVALID_ARGUMENT);
  rueda_session* second = session.get();
  CHECK(rueda_open(nullptr, &second) == RUEDA_INVALID_ARGUMENT);
  CHECK(second == nullptr);
  CHECK(rueda_alloc(session.get(), 1, nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_free(session.get(), nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_owns(session.get(), nullptr, 0) == 0);
  CHECK(rueda_run(session.get(), nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_submit(session.get(), nullptr, 1, nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_submit(session.get(), nullptr, 0, nullptr) == RUEDA_OK);
  CHECK(rueda_poll(session.get(), 1, nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_gather_result(session.get(), 1, nullptr) == RUEDA_INVALID_ARGUMENT);
  CHECK(rueda_health(session.get()) == RUEDA_OK);
}

TEST_CASE("operations that make no sense are refused with their name") {
  DaemonFixture daemon;
  const Session session = open(optionsOf(daemon));
  REQUIRE(session != nullptr);
  float value = 0;
  const int64_t negative[] = {2, -1};
  const int64_t huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  const auto refusal = [&](const rueda_op& op) {
    rueda_handle handle = 0;
    CHECK(rueda_submit(session.get(), &op, 1, &handle) == RUEDA_INVALID_ARGUMENT);
    CHECK(rueda_run(session.get(), &op) == RUEDA_INVALID_ARGUMENT);
    return lastError();
  };
  rueda_op op = sum("x", &value, nullptr, 0);
  op.kind = 4;
  CHECK(refusal(op) == "'x': unknown kind 4, dtype 7 or reduce op 1");
  op = sum("x", &value, nullptr, 0);
  op.dtype = 11;
  CHECK(refusal(op) == "'x': unknown kind 0, dtype 11 or reduce op 1");
  op.dtype = RUEDA_FLOAT32;
  op.reduce_op = 2;
  CHECK(refusal(op) == "'x': unknown kind 0, dtype 7 or reduce op 2");
  CHECK(refusal(sum(nullptr, &value, nullptr, 0)) == "an operation needs a name");
  CHECK(refusal(sum("x", &value, nullptr, 1)) == "'x': 1 dimensions, or no shape");
  CHECK(refusal(sum("x", &value, negative, 65)) == "'x': 65 dimensions, or no shape");
  CHECK(refusal(sum("x", &value, negative, 2)) == "'x': dimension 1 is -1");
  CHECK(refusal(sum("x", &value, huge, 2)) == "'x': dimension 1 is 1099511627776");
  CHECK(refusal(sum("x", nullptr, nullptr, 0)) == "allreduce 'x': input or output is NULL");
  CHECK(refusal(sum(std::string(1025, 'n').c_str(), &value, nullptr, 0)) ==
        "a name of 1025 bytes; at most 1024 are allowed");
}

TEST_CASE("structs of older and newer callers are understood") {
  DaemonFixture daemon;
  const Session session = open(optionsOf(daemon));
  REQUIRE(session != nullptr);
  float value = 3;
  SECTION("older: what is missing is zero, here the scales") {
    rueda_op op = sum("x", &value, nullptr, 0);
    op.prescale = 100;
    op.scale_set = 1;
    op.struct_size = offsetof(rueda_op, scale_set);
    CHECK(rueda_run(session.get(), &op) == RUEDA_OK);
    CHECK(value == 3);
  }
  SECTION("newer: what is behind our fields is skipped, also from one operation to the next") {
    struct Newer {
      rueda_op op;
      char more[64];
    };
    float second = 4;
    Newer ops[2] = {{sum("x", &value, nullptr, 0), {}}, {sum("y", &second, nullptr, 0), {}}};
    for (Newer& newer : ops) {
      newer.op.struct_size = sizeof newer;
      newer.op.prescale = newer.op.postscale = 2;
      newer.op.scale_set = 1;
      std::memset(newer.more, 0xff, sizeof newer.more);
    }
    rueda_handle handles[2] = {};
    REQUIRE(rueda_submit(session.get(), &ops[0].op, 2, handles) == RUEDA_OK);
    CHECK(rueda_wait(session.get(), handles[0], 0) == RUEDA_OK);
    CHECK(rueda_wait(session.get(), handles[1], 0) == RUEDA_OK);
    CHECK(value == 12);
    CHECK(second == 16);
  }
  SECTION("a size that nobody has set is refused") {
    rueda_op op = sum("x", &value, nullptr, 0);
    op.struct_size = GENERATE(0u, 3u);
    CHECK(rueda_run(session.get(), &op) == RUEDA_INVALID_ARGUMENT);
    CHECK(lastError() == "struct_size is not set");
    rueda_options options{};
    CHECK(rueda_options_init(&options) == RUEDA_INVALID_ARGUMENT);
    rueda_session* other = nullptr;
    CHECK(rueda_open(&options, &other) == RUEDA_INVALID_ARGUMENT);
    rueda_gathered gathered{};
    CHECK(rueda_gather_result(session.get(), 1, &gathered) == RUEDA_INVALID_ARGUMENT);
  }
}

TEST_CASE("options come from the environment, and texts that do not fit are refused") {
  rueda_options options{};
  options.struct_size = sizeof options;
  ::setenv("RUEDA_JOB", "from-the-environment", 1);
  CHECK(rueda_options_init(&options) == RUEDA_OK);
  CHECK(std::string(options.job) == "from-the-environment");
  CHECK(options.struct_size == sizeof options);
  CHECK(options.interrupted == nullptr);
  ::setenv("RUEDA_JOB", std::string(128, 'j').c_str(), 1);
  CHECK(rueda_options_init(&options) == RUEDA_INVALID_ARGUMENT);
  ::unsetenv("RUEDA_JOB");
}

TEST_CASE("ranks that are none of the job are refused without a daemon") {
  rueda_options options{};
  options.struct_size = sizeof options;
  rueda_session* session = nullptr;
  for (const auto& [rank, size] : {std::pair(0, 0), std::pair(-1, 2), std::pair(2, 2)}) {
    options.rank = rank;
    options.size = size;
    CHECK(rueda_open(&options, &session) == RUEDA_INVALID_ARGUMENT);
    CHECK(session == nullptr);
  }
}

TEST_CASE("a daemon that is not there is unavailable, with what to do about it") {
  rueda_options options{};
  options.struct_size = sizeof options;
  options.size = options.local_size = 1;
  std::strcpy(options.socket, "/nowhere/rueda.sock");
  rueda_session* session = nullptr;
  CHECK(rueda_open(&options, &session) == RUEDA_UNAVAILABLE);
  CHECK_THAT(lastError(), Catch::Contains("is the rueda service running?"));
}

TEST_CASE("two ranks run a whole job through the C ABI") {
  DaemonFixture daemon;
  std::string texts[2];
  std::thread ranks[2];
  for (int rank = 0; rank < 2; ++rank)
    ranks[rank] = std::thread([&, rank] {
      const Session session = open(optionsOf(daemon, rank, 2));
      if (session == nullptr) {
        texts[rank] = lastError();
        return;
      }
      if (rueda_rank(session.get()) != rank || rueda_size(session.get()) != 2)
        texts[rank] += "rank;";
      void* block = nullptr;
      if (rueda_alloc(session.get(), 4000, &block) != RUEDA_OK) texts[rank] += "alloc;";
      if (rueda_owns(session.get(), block, 4000) != 1) texts[rank] += "owns;";
      auto* values = static_cast<float*>(block);
      for (int i = 0; i < 1000; ++i) values[i] = static_cast<float>(rank + i);
      const int64_t shape[] = {10, 100};
      const rueda_op reduce = sum("x", values, shape, 2);
      if (rueda_run(session.get(), &reduce) != RUEDA_OK) texts[rank] += lastError();
      if (values[0] != 1 || values[999] != 1999) texts[rank] += "sum;";
      rueda_op gather = sum("rows", values, shape, 2);
      gather.kind = RUEDA_ALLGATHER;
      gather.output = nullptr;
      rueda_handle handle = 0;
      int32_t done = 0;
      rueda_gathered rows{};
      rows.struct_size = sizeof rows;
      if (rueda_submit(session.get(), &gather, 1, &handle) != RUEDA_OK) texts[rank] += lastError();
      if (rueda_gather_result(session.get(), handle, &rows) == RUEDA_OK) texts[rank] += "early;";
      if (rueda_wait(session.get(), handle, 0) != RUEDA_OK) texts[rank] += lastError();
      if (rueda_poll(session.get(), handle, &done) != RUEDA_OK || done != 1) texts[rank] += "poll;";
      if (rueda_gather_result(session.get(), handle, &rows) != RUEDA_OK) texts[rank] += lastError();
      if (rows.ranks != 2 || rows.bytes != 8000 || rows.first_dims[1] != 10) texts[rank] += "rows;";
      if (std::memcmp(static_cast<const char*>(rows.data) + 4000, values, 4000) != 0)
        texts[rank] += "bytes;";
      if (rueda_release(session.get(), handle) != RUEDA_OK) texts[rank] += lastError();
      if (rueda_free(session.get(), block) != RUEDA_OK) texts[rank] += lastError();
      rueda_op barrier = sum("end", nullptr, nullptr, 0);
      barrier.kind = RUEDA_BARRIER;
      if (rueda_run(session.get(), &barrier) != RUEDA_OK) texts[rank] += lastError();
    });
  for (std::thread& rank : ranks) rank.join();
  CHECK(texts[0] == "");
  CHECK(texts[1] == "");
}

TEST_CASE("the last error is the calling thread's own") {
  CHECK(rueda_health(nullptr) == RUEDA_NOT_INITIALIZED);
  std::string other = "not run";
  std::thread([&other] { other = lastError(); }).join();
  CHECK(other == "");
  CHECK(lastError() == "no session: rueda_open has not succeeded");
}

TEST_CASE("a wait ends when the callback says so, and hands it its context") {
  DaemonFixture daemon;
  rueda_options options = optionsOf(daemon, 0, 2);  // Rank 1 never comes.
  int calls = 0;
  options.interrupted = [](void* context) { return ++*static_cast<int*>(context) >= 2 ? 1 : 0; };
  options.interrupted_context = &calls;
  rueda_session* session = nullptr;
  CHECK(rueda_open(&options, &session) == RUEDA_INTERRUPTED);
  CHECK(calls == 2);
}

TEST_CASE("a forked child is refused by every call, and its end does not touch the session") {
  DaemonFixture daemon;
  const Session session = open(optionsOf(daemon));
  REQUIRE(session != nullptr);
  void* block = nullptr;
  REQUIRE(rueda_alloc(session.get(), 64, &block) == RUEDA_OK);
  Child child([&] {
    float value = 1;
    const rueda_op op = sum("x", &value, nullptr, 0);
    rueda_handle handle = 0;
    void* other = nullptr;
    int wrong = rueda_health(session.get()) == RUEDA_NOT_INITIALIZED ? 0 : 1;
    wrong += rueda_run(session.get(), &op) == RUEDA_NOT_INITIALIZED ? 0 : 2;
    wrong += rueda_submit(session.get(), &op, 1, &handle) == RUEDA_NOT_INITIALIZED ? 0 : 4;
    wrong += rueda_alloc(session.get(), 64, &other) == RUEDA_NOT_INITIALIZED ? 0 : 8;
    wrong += rueda_free(session.get(), block) == RUEDA_NOT_INITIALIZED ? 0 : 16;
    wrong += lastError().find("this process was forked") == 0 ? 0 : 32;
    rueda_close(session.get());
    return wrong;
  });
  CHECK(child.wait() == 0);
  float value = 1;
  const rueda_op op = sum("x", &value, nullptr, 0);
  rueda_handle handle = 0;
  CHECK(rueda_health(session.get()) == RUEDA_OK);
  REQUIRE(rueda_submit(session.get(), &op, 1, &handle) == RUEDA_OK);
  CHECK(rueda_wait(session.get(), handle, 0) == RUEDA_OK);
}
