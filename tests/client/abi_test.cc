// SPDX-License-Identifier: Apache-2.0

// Whole uses of the C ABI against a daemon in this process; c_abi_test has its edges.
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <thread>

#include "client/c/rueda.h"
#include "tests/kit/daemon_fixture.h"

namespace {

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

TEST_CASE("rows are gathered to the caller's memory, or to memory that is the caller's then") {
  DaemonFixture daemon;
  Session sessions[2];
  std::thread opener([&] { sessions[1] = open(optionsOf(daemon, 1, 2)); });
  sessions[0] = open(optionsOf(daemon, 0, 2));
  opener.join();
  REQUIRE((sessions[0] && sessions[1]));
  float rows[3] = {1, 2, 3};
  float output[3] = {};
  void* result = nullptr;
  int64_t received[2] = {};
  int32_t codes[2];
  const auto run = [&](int rank) {
    const int64_t shape = rank == 0 ? 1 : 2;
    rueda_op op = sum("x", rank == 0 ? rows : rows + 1, &shape, 1);
    op.kind = RUEDA_ALLGATHER;
    op.output = rank == 0 ? output : nullptr;
    op.output_bytes = sizeof output;
    op.result = &result;
    op.received = rank == 0 ? received : nullptr;
    codes[rank] = rueda_run(sessions[rank].get(), &op);
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  CHECK((codes[0] == RUEDA_OK && codes[1] == RUEDA_OK));
  CHECK((received[0] == 1 && received[1] == 2));
  CHECK(std::memcmp(output, rows, sizeof rows) == 0);
  REQUIRE(rueda_owns(sessions[1].get(), result, sizeof rows) == 1);
  CHECK(std::memcmp(result, rows, sizeof rows) == 0);
  CHECK(rueda_free(sessions[1].get(), result) == RUEDA_OK);
}

TEST_CASE("an output of a gather means nothing to a caller that cannot say its room") {
  DaemonFixture daemon;
  const Session alone = open(optionsOf(daemon));
  const int64_t shape[] = {1};
  float value = 5;
  float output = 1;
  rueda_op op = sum("x", &value, shape, 1);
  op.kind = RUEDA_ALLGATHER;
  op.output = &output;
  op.output_bytes = sizeof output;
  op.struct_size = offsetof(rueda_op, output_bytes);
  CHECK(rueda_run(alone.get(), &op) == RUEDA_INVALID_ARGUMENT);
  CHECK(output == 1);
  op.struct_size = sizeof op;
  CHECK(rueda_run(alone.get(), &op) == RUEDA_OK);
  CHECK(output == 5);
}

TEST_CASE("data types are described from number 0 on, without a gap") {
  rueda_dtype_info info{};
  CHECK(rueda_describe_dtype(RUEDA_FLOAT32, &info) == RUEDA_INVALID_ARGUMENT);  // No size set.
  info.struct_size = sizeof info;
  CHECK(rueda_describe_dtype(RUEDA_FLOAT32, nullptr) == RUEDA_INVALID_ARGUMENT);
  uint32_t dtype = 0;
  for (; rueda_describe_dtype(dtype, &info) == RUEDA_OK; ++dtype) {
    CHECK(info.bytes == rueda_dtype_size(dtype));
    const bool isComplex = dtype == RUEDA_COMPLEX64 || dtype == RUEDA_COMPLEX128;
    const uint32_t ordered = 1u << RUEDA_MIN | 1u << RUEDA_MAX;
    const uint32_t all = ordered | 1u << RUEDA_AVERAGE | 1u << RUEDA_SUM | 1u << RUEDA_PRODUCT;
    CHECK(info.reduce_ops == (isComplex ? all & ~ordered : all));
  }
  CHECK(dtype == RUEDA_COMPLEX128 + 1);
  CHECK(lastError() == "no data type 17");
  CHECK(rueda_describe_dtype(RUEDA_FLOAT8_E5M2, &info) == RUEDA_OK);
  CHECK(std::string(info.name) == "float8_e5m2");
  CHECK(rueda_describe_dtype(256, &info) == RUEDA_INVALID_ARGUMENT);
}

TEST_CASE("a reduction that the type does not have is refused before it is submitted") {
  DaemonFixture daemon;
  const Session session = open(optionsOf(daemon));
  float parts[2] = {1, 2};
  rueda_op op = sum("x", parts, nullptr, 0);
  op.dtype = RUEDA_COMPLEX64;
  op.reduce_op = RUEDA_MIN;
  CHECK(rueda_run(session.get(), &op) == RUEDA_INVALID_ARGUMENT);
  CHECK(lastError() == "allreduce 'x': complex64 has no min");
  rueda_handle handle = 0;
  CHECK(rueda_submit(session.get(), &op, 1, &handle) == RUEDA_INVALID_ARGUMENT);
  CHECK(lastError() == "allreduce 'x': complex64 has no min");
  op.reduce_op = RUEDA_PRODUCT;
  CHECK(rueda_run(session.get(), &op) == RUEDA_OK);
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
