// SPDX-License-Identifier: Apache-2.0

// Ranks that come to the same operation in different ways: blocking and asynchronous, from several
// threads, in different orders, alone and in groups.

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::DaemonFixture;
using rueda::kit::problem;
using rueda::kit::runRanks;
using rueda::shm::Status;
using std::chrono::milliseconds;

const std::vector<int64_t> kScalar;

Status submitAndWait(Client& client, const std::vector<Operation>& ops) {
  std::vector<uint64_t> handles;
  Status status = client.submit(ops, &handles);
  for (size_t i = 0; i < handles.size() && status.isOk(); ++i)
    status = client.wait(handles[i], milliseconds(0));
  return status;
}

// A sum of one float of value `mine`; "" when the result is `expected`.
std::string sum(Client& client, const std::string& name, float mine, float expected,
                bool isBlocking, uint64_t count = 1) {
  std::vector<float> data(count, mine);
  const std::vector<int64_t> shape = {static_cast<int64_t>(count)};
  const auto op = rueda::kit::allreduce(name, shape, data.data(), data.data());
  const Status status = isBlocking ? client.run(op) : submitAndWait(client, {op});
  if (!status.isOk()) return problem(name, status) + "; ";
  const bool isRight =
      std::all_of(data.begin(), data.end(), [&](float got) { return got == expected; });
  return isRight ? "" : name + " is " + std::to_string(data[0]) + "; ";
}

}  // namespace

TEST_CASE("a blocking rank meets an asynchronous one, in either order") {
  DaemonFixture daemon;
  const uint64_t count = GENERATE(1, 100000);
  const auto body = [&](Client& client, int rank) {
    std::string wrong;
    for (int i = 0; i < 10; ++i) {
      const std::string name = "t" + std::to_string(i);
      const bool isBlocking = (rank + i) % 2 == 0;
      wrong += sum(client, name, static_cast<float>(rank + i), static_cast<float>(1 + 2 * i),
                   isBlocking, count);
    }
    return wrong;
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("after a detour through the ring the ranks meet on the direct path again") {
  DaemonFixture daemon;
  const auto body = [&](Client& client, int rank) {
    std::string wrong;
    for (int i = 0; i < 20; ++i) {
      const std::string name = "t" + std::to_string(i);
      // Once, rank 1 alone goes through the ring; all others are blocking on all ranks.
      wrong += sum(client, name, static_cast<float>(rank), 3, i != 5 || rank != 1);
    }
    return wrong;
  };
  CHECK(runRanks(daemon, 3, body) == "");
  // Only the detour and what the ranks needed to find together: the daemon slept otherwise.
}

TEST_CASE("threads that run operations in different orders on each rank all get their results") {
  DaemonFixture daemon;
  const int threadsOfRank = GENERATE(2, 4);
  const uint64_t count = GENERATE(1, 5000);
  const auto body = [&](Client& client, int rank) {
    std::vector<std::string> texts(static_cast<size_t>(threadsOfRank));
    std::vector<std::thread> threads;
    for (int t = 0; t < threadsOfRank; ++t) {
      threads.emplace_back([&, t] {
        // Thread t of rank 1 does what thread t + 1 of rank 0 does.
        const int lane = (t + rank) % threadsOfRank;
        for (int i = 0; i < 25; ++i) {
          const std::string name = "lane" + std::to_string(lane) + "." + std::to_string(i);
          texts[static_cast<size_t>(t)] += sum(client, name, static_cast<float>(rank + lane),
                                               static_cast<float>(1 + 2 * lane), true, count);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    std::string all;
    for (const std::string& text : texts) all += text;
    return all;
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("operations submitted in random orders end in the same results") {
  DaemonFixture daemon;
  const unsigned seed = Catch::rngSeed();
  const auto body = [&](Client& client, int rank) {
    constexpr int kOps = 200;
    std::vector<int> order(kOps);
    for (int i = 0; i < kOps; ++i) order[static_cast<size_t>(i)] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(seed + static_cast<unsigned>(rank)));
    std::vector<float> data(kOps);
    std::vector<std::string> names(kOps);
    std::vector<uint64_t> handles;
    for (const int i : order) {
      const auto n = static_cast<size_t>(i);
      data[n] = static_cast<float>(i);
      names[n] = std::to_string(i);
      std::vector<uint64_t> one;
      const auto op = rueda::kit::allreduce(names[n], kScalar, &data[n], &data[n]);
      if (const Status status = client.submit({op}, &one); !status.isOk()) return status.toString();
      handles.push_back(one[0]);
    }
    for (const uint64_t handle : handles)
      if (const Status status = client.wait(handle, milliseconds(0)); !status.isOk())
        return status.toString();
    for (int i = 0; i < kOps; ++i)
      if (data[static_cast<size_t>(i)] != static_cast<float>(4 * i)) return std::string("wrong");
    return std::string();
  };
  CHECK(runRanks(daemon, 4, body) == "");
}

TEST_CASE("a group runs whole, whoever of the others has grouped it") {
  DaemonFixture daemon;
  // Bit r set: rank r submits a, b, c as one group; else one by one. Some mixtures once hung.
  const int grouped = GENERATE(range(0, 8));
  const bool isBackwards = GENERATE(false, true);  // Rank 1.
  CAPTURE(grouped, isBackwards);
  const auto body = [&](Client& client, int rank) -> std::string {
    float data[3] = {1, 2, 3};
    std::vector<Operation> ops;
    const std::string names[3] = {"a", "b", "c"};
    for (int i = 0; i < 3; ++i)
      ops.push_back(rueda::kit::allreduce(names[i], kScalar, &data[i], &data[i]));
    if (isBackwards && rank == 1) std::reverse(ops.begin(), ops.end());
    if ((grouped >> rank & 1) != 0) {
      if (const Status status = submitAndWait(client, ops); !status.isOk())
        return status.toString();
    } else {
      std::vector<uint64_t> handles;
      for (const Operation& op : ops) {
        std::vector<uint64_t> one;
        (void)client.submit({op}, &one);
        handles.push_back(one[0]);
      }
      for (const uint64_t handle : handles)
        if (const Status status = client.wait(handle, std::chrono::seconds(20)); !status.isOk())
          return status.toString();
    }
    return data[0] == 3 && data[1] == 6 && data[2] == 9 ? "" : "wrong result";
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("a group larger than the daemon takes from one rank at a time is still one group") {
  DaemonFixture daemon;
  const auto body = [&](Client& client, int rank) -> std::string {
    constexpr size_t kOps = 300;
    std::vector<float> data(kOps, 1.0f);
    std::vector<std::string> names(kOps);
    std::vector<Operation> ops;
    for (size_t i = 0; i < kOps; ++i) {
      names[i] = std::to_string(i);
      ops.push_back(rueda::kit::allreduce(names[i], kScalar, &data[i], &data[i]));
    }
    if (rank == 1) std::reverse(ops.begin(), ops.end());  // Once, this hung.
    std::vector<uint64_t> handles;
    if (const Status status = client.submit(ops, &handles); !status.isOk())
      return status.toString();
    for (const uint64_t handle : handles)
      if (const Status status = client.wait(handle, std::chrono::seconds(20)); !status.isOk())
        return status.toString();
    return std::count(data.begin(), data.end(), 2.0f) == kOps ? "" : "wrong result";
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("poll says when, and a deadline leaves the operation alive") {
  DaemonFixture daemon;
  std::atomic<bool> mayGo{false};
  const auto body = [&](Client& client, int rank) -> std::string {
    while (rank == 1 && !mayGo.load()) std::this_thread::yield();
    float value = 1;
    std::vector<uint64_t> handles;
    (void)client.submit({rueda::kit::allreduce("x", kScalar, &value, &value)}, &handles);
    if (rank == 0) {
      const auto early = client.poll(handles[0]);
      if (!early.isOk() || early.value()) return "done before the other rank came";
      const Status waited = client.wait(handles[0], milliseconds(20));
      if (waited.code() != rueda::shm::Code::kDeadlineExceeded) return waited.toString();
      mayGo.store(true);
    }
    for (;;) {
      const auto done = client.poll(handles[0]);
      if (!done.isOk()) return done.status().toString();
      if (done.value()) break;
      std::this_thread::yield();
    }
    if (const Status status = client.wait(handles[0], milliseconds(0)); !status.isOk())
      return status.toString();
    // The handle is forgotten now.
    if (client.wait(handles[0], milliseconds(0)).code() != rueda::shm::Code::kInvalidArgument)
      return "the handle lives on";
    return value == 2 ? "" : "wrong result";
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("two threads that wait for one failing operation are both told, or one that it is gone") {
  // Once, the second was told that all was well.
  DaemonFixture daemon;
  const auto body = [&](Client& client, int rank) -> std::string {
    for (int i = 0; i < 50; ++i) {
      float data[2] = {};
      const std::vector<int64_t> shape = {rank + 1};
      std::vector<uint64_t> handles;
      (void)client.submit({rueda::kit::allreduce("x", shape, data, data)}, &handles);
      Status other;
      std::thread second([&] { other = client.wait(handles[0], milliseconds(0)); });
      const Status mine = client.wait(handles[0], milliseconds(0));
      second.join();
      if (mine.isOk() || other.isOk()) return "a mismatch was called success";
    }
    return "";
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("an interrupted wait ends with that word, and the session with it") {
  DaemonFixture daemon;
  std::atomic<bool> stop{false};
  const auto body = [&](Client& client, int rank) -> std::string {
    if (rank == 1) {
      while (!stop.load()) std::this_thread::yield();
      return "";
    }
    const Status status = client.run(rueda::kit::barrier("never"));
    stop.store(true);
    if (status.code() != rueda::shm::Code::kInterrupted) return status.toString();
    if (status.message() != "interrupted in barrier 'never'") return status.message();
    return client.health().code() == rueda::shm::Code::kInterrupted ? "" : "the session goes on";
  };
  const auto adjust = [](rueda::client::Options* options) {
    options->interrupted = [] { return true; };
  };
  CHECK(runRanks(daemon, 2, body, adjust) == "");
}
