// SPDX-License-Identifier: Apache-2.0

// Allgather from end to end: rows of all ranks, and the memory that they lie in meanwhile.

#include <catch2/catch.hpp>
#include <numeric>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::DaemonFixture;
using rueda::kit::runRanks;
using rueda::shm::Code;
using rueda::shm::Status;
using std::chrono::milliseconds;

void isolate(rueda::client::Options* options) { options->isolated = true; }

// Gathers `rows[rank]` rows of `width` int32 values, which say whose they are; checks all of them.
std::string gather(Client& client, const std::vector<int64_t>& rows, int64_t width,
                   bool fromArena = false) {
  const int64_t mine = rows[static_cast<size_t>(client.rank())];
  const std::vector<int64_t> shape = {mine, width};
  const auto count = static_cast<size_t>(mine * width);
  std::vector<int32_t> foreign(count);
  auto* data = foreign.data();
  if (fromArena) data = reinterpret_cast<int32_t*>(client.memory().allocate(count * 4).value());
  std::iota(data, data + count, client.rank() * 1000000);
  Operation op = rueda::kit::allgather("g", shape, count == 0 ? nullptr : data);
  op.dtype = rueda::shm::DType::kInt32;
  std::vector<uint64_t> handles;
  if (const Status status = client.submit({op}, &handles); !status.isOk()) return status.toString();
  if (const Status status = client.wait(handles[0], milliseconds(0)); !status.isOk())
    return status.toString();
  const auto* got = client.gathered(handles[0]);
  if (got == nullptr || got->firstDims != rows) return "wrong first dimensions";
  const auto* value = reinterpret_cast<const int32_t*>(got->data);
  const auto total = static_cast<uint64_t>(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
  if (got->bytes != total * static_cast<uint64_t>(width) * 4) return "wrong size";
  for (size_t rank = 0; rank < rows.size(); ++rank)
    for (int64_t i = 0; i < rows[rank] * width; ++i)
      if (*value++ != static_cast<int32_t>(rank * 1000000 + static_cast<size_t>(i)))
        return "wrong value";
  return rueda::kit::problem("release", client.release(handles[0]));
}

}  // namespace

TEST_CASE("rows of all ranks come in rank order, however many each gives") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  const std::vector<int64_t> rows = GENERATE(
      std::vector<int64_t>{1, 1}, std::vector<int64_t>{3, 5}, std::vector<int64_t>{0, 4},
      std::vector<int64_t>{4, 0}, std::vector<int64_t>{0, 0}, std::vector<int64_t>{20000, 1, 300});
  const auto body = [&](Client& client, int) {
    return gather(client, rows, 3) + gather(client, rows, 3, true) + gather(client, rows, 0);
  };
  CHECK(runRanks(daemon, static_cast<int>(rows.size()), body, isIsolated ? isolate : nullptr) ==
        "");
}

TEST_CASE("a job of one rank gathers its own rows") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  const auto body = [](Client& client, int) { return gather(client, {7}, 2); };
  CHECK(runRanks(daemon, 1, body, isIsolated ? isolate : nullptr) == "");
}

TEST_CASE("a gather gives its rows' memory back when all have copied them") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    for (int i = 0; i < 40; ++i)  // 40 × 1 MiB go through a segment of 4 MiB.
      if (const std::string wrong = gather(client, {262144, 10}, 1); !wrong.empty()) return wrong;
    return client.run(rueda::kit::barrier("all done")).toString() == "ok" ? "" : "barrier";
  };
  std::thread watcher;
  uint64_t arena = 0;
  const auto counted = [&](Client& client, int rank) -> std::string {
    const std::string wrong = body(client, rank);
    if (rank == 0) arena = daemon.state().jobs.at(0).ranks.at(0).arenaBytes;
    return wrong;
  };
  CHECK(runRanks(daemon, 2, counted) == "");
  CHECK(arena <= (4u << 20) + (8u << 20));
}

TEST_CASE("a refused gather gives its rows' memory back") {
  // Once every gather that ended in an error kept the block that its rows were copied to.
  DaemonFixture daemon;
  uint64_t arena = 0;
  const auto body = [&](Client& client, int rank) -> std::string {
    std::vector<float> data(262144);
    for (int i = 0; i < 40; ++i) {
      const std::vector<int64_t> shape = {131072 / (rank + 1), rank + 1};
      std::vector<uint64_t> handles;
      (void)client.submit({rueda::kit::allgather("g", shape, data.data())}, &handles);
      const Status status = client.wait(handles[0], milliseconds(0));
      if (status.code() != Code::kMismatch) return status.toString();
    }
    (void)client.run(rueda::kit::barrier("all done"));
    if (rank == 0) arena = daemon.state().jobs.at(0).ranks.at(0).arenaBytes;
    return "";
  };
  CHECK(runRanks(daemon, 2, body) == "");
  CHECK(arena <= 4u << 20);
}

TEST_CASE("a group that cannot be submitted gives the memory of its gathers back") {
  // Once the block of a gather in front of the refused operation was lost.
  DaemonFixture daemon;
  uint64_t arena = 0;
  const auto body = [&](Client& client, int rank) -> std::string {
    std::vector<float> data(262144);
    const std::vector<int64_t> shape = {131072};
    for (int i = 0; i < 40; ++i) {
      std::vector<uint64_t> handles;
      const auto op = rueda::kit::allgather("g", shape, data.data());
      if (client.submit({op, op}, &handles).code() != Code::kAlreadyExists) return "accepted twice";
    }
    (void)client.run(rueda::kit::barrier("all done"));
    if (rank == 0) arena = daemon.state().jobs.at(0).ranks.at(0).arenaBytes;
    return "";
  };
  CHECK(runRanks(daemon, 2, body) == "");
  CHECK(arena <= 4u << 20);
}

TEST_CASE("many gathers in flight at once keep their rows apart") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  const auto body = [](Client& client, int rank) -> std::string {
    constexpr int kGathers = 64;
    const std::vector<int64_t> shape = {2};
    std::vector<std::array<int32_t, 2>> data(kGathers);
    std::vector<std::string> names(kGathers);
    std::vector<uint64_t> handles;
    for (int i = 0; i < kGathers; ++i) {
      const auto n = static_cast<size_t>(i);
      names[n] = "g" + std::to_string(i);
      data[n] = {i, rank};
      auto op = rueda::kit::allgather(names[n], shape, data[n].data());
      op.dtype = rueda::shm::DType::kInt32;
      std::vector<uint64_t> one;
      if (const Status status = client.submit({op}, &one); !status.isOk()) return status.toString();
      handles.push_back(one[0]);
    }
    for (int i = 0; i < kGathers; ++i) {
      const uint64_t handle = handles[static_cast<size_t>(i)];
      if (const Status status = client.wait(handle, milliseconds(0)); !status.isOk())
        return status.toString();
      const auto* value = reinterpret_cast<const int32_t*>(client.gathered(handle)->data);
      if (value[0] != i || value[1] != 0 || value[2] != i || value[3] != 1) return "mixed up";
    }
    return "";
  };
  CHECK(runRanks(daemon, 2, body, isIsolated ? isolate : nullptr) == "");
}

TEST_CASE("a result lives until its release, and only that of a finished gather") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    float value = 1;
    const std::vector<int64_t> shape = {1};
    std::vector<uint64_t> handles;
    (void)client.submit({rueda::kit::allgather("g", shape, &value)}, &handles);
    if (client.gathered(handles[0]) != nullptr) return "a result before the wait";
    if (client.release(handles[0]).code() != Code::kInvalidArgument) return "released too early";
    // Waiting twice is the same as once.
    for (int i = 0; i < 2; ++i)
      if (const Status status = client.wait(handles[0], milliseconds(0)); !status.isOk())
        return status.toString();
    if (client.gathered(handles[0]) == nullptr) return "no result";
    if (!client.release(handles[0]).isOk()) return "not released";
    if (client.gathered(handles[0]) != nullptr) return "a result after the release";
    if (client.release(handles[0]).code() != Code::kInvalidArgument) return "released twice";
    if (client.gathered(12345) != nullptr) return "a result of nothing";
    if (client.run(rueda::kit::allgather("g", shape, &value)).code() != Code::kInvalidArgument)
      return "ran an allgather";
    return "";
  };
  CHECK(runRanks(daemon, 1, body) == "");
}
