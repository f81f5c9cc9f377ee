// SPDX-License-Identifier: Apache-2.0

// Who wakes the daemon. The last rank to start an operation does, and it must be heard although the
// ranks before it never wrote their doorbells, whatever else each has started, and though nobody
// else calls anything any more.

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "tests/kit/two_ranks.h"

namespace {

using rueda::client::Client;
using rueda::kit::DaemonFixture;
using rueda::kit::kPatience;
using rueda::kit::start;
using rueda::kit::TwoRanks;
using rueda::shm::Status;
using std::chrono::milliseconds;

const std::vector<int64_t> kScalar;

// Longer than a waiting client spins, so that it sleeps. Nothing tells when it does; where it has
// not yet, the result must be the same.
void letSleep() { std::this_thread::sleep_for(milliseconds(20)); }

std::vector<size_t> shuffled(size_t count, std::mt19937* random) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  std::shuffle(order.begin(), order.end(), *random);
  return order;
}

// Waits for a sum on a thread of its own.
class Waiter {
 public:
  Waiter(Client& client, uint64_t handle)
      : thread_([this, &client, handle] { status_ = client.wait(handle, kPatience); }) {}
  ~Waiter() {
    if (thread_.joinable()) thread_.join();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;
  Status join() {
    thread_.join();
    return status_;
  }

 private:
  Status status_;
  std::thread thread_;
};

}  // namespace

TEST_CASE("what both ranks have started ends for the one that waits, in whatever order") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  TwoRanks two(daemon, isIsolated);
  REQUIRE(two.areOpen());
  std::mt19937 random(Catch::rngSeed());
  constexpr size_t kNames = 8;
  for (int trial = 0; trial < 50; ++trial) {
    CAPTURE(isIsolated, trial);
    float data[2][kNames];
    uint64_t handles[2][kNames];
    size_t next[2] = {0, 0};
    const std::vector<size_t> order[2] = {shuffled(kNames, &random), shuffled(kNames, &random)};
    while (next[0] + next[1] < 2 * kNames) {
      const size_t rank = next[0] == kNames || (next[1] < kNames && random() % 2 == 0) ? 1 : 0;
      const size_t name = order[rank][next[rank]++];
      data[rank][name] = static_cast<float>(rank + name);
      handles[rank][name] =
          start(*two.clients[rank], "t" + std::to_string(name), kScalar, &data[rank][name]);
      if (random() % 16 == 0) letSleep();
    }
    const size_t waiter = random() % 2;  // The other one says nothing until this one has all.
    for (const size_t rank : {waiter, 1 - waiter})
      for (size_t name = 0; name < kNames; ++name) {
        REQUIRE(two.clients[rank]->wait(handles[rank][name], kPatience).isOk());
        CHECK(data[rank][name] == static_cast<float>(1 + 2 * name));
      }
  }
}

TEST_CASE("a rank that sleeps for an operation hears of a peer that only starts it") {
  DaemonFixture daemon;
  TwoRanks two(daemon);
  REQUIRE(two.areOpen());
  float mine = 1;
  float theirs = 2;
  float more[4] = {};
  // Ahead: the peer has started other operations before, so by the counts it is not the last.
  const size_t ahead = GENERATE(0, 1, 4);
  for (size_t i = 0; i < ahead; ++i)
    REQUIRE(start(*two.clients[0], "other" + std::to_string(i), kScalar, &more[i]) != 0);
  Waiter waiter(*two.clients[1], start(*two.clients[1], "x", kScalar, &mine));
  letSleep();
  REQUIRE(start(*two.clients[0], "x", kScalar, &theirs) != 0);
  CHECK(waiter.join().isOk());
  CHECK(mine == 3);
}

TEST_CASE("a rank that blocks in an operation hears of a peer that only starts it") {
  DaemonFixture daemon;
  TwoRanks two(daemon);
  REQUIRE(two.areOpen());
  float mine = 1;
  float theirs = 2;
  const bool isStartedFirst = GENERATE(true, false);
  if (isStartedFirst) CHECK(start(*two.clients[0], "x", kScalar, &theirs) != 0);
  Status status;
  std::thread blocked(
      [&] { status = two.clients[1]->run(rueda::kit::allreduce("x", kScalar, &mine, &mine)); });
  letSleep();
  if (!isStartedFirst) CHECK(start(*two.clients[0], "x", kScalar, &theirs) != 0);
  blocked.join();
  CHECK(status.isOk());
  CHECK(mine == 3);
}

// While the daemon naps, who starts does not wake it: it must look by itself, and for one that
// waits. So many at once make it nap; how long the ranks pause decides whether it still does.
TEST_CASE("what is started in quick succession ends without a wait, and soon for who waits") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  TwoRanks two(daemon, isIsolated);
  REQUIRE(two.areOpen());
  constexpr size_t kNames = 40;
  float* data[2];
  for (const size_t rank : {0, 1}) {
    const auto memory = two.clients[rank]->memory().allocate(kNames * sizeof(float));
    REQUIRE(memory.isOk());
    data[rank] = reinterpret_cast<float*>(memory.value());
  }
  std::mt19937 random(Catch::rngSeed());
  for (int trial = 0; trial < 30; ++trial) {
    CAPTURE(isIsolated, trial);
    std::fill_n(data[0], kNames, 1.0F);
    std::fill_n(data[1], kNames, 1.0F);
    uint64_t handles[2][kNames];
    for (size_t name = 0; name < kNames; ++name)
      for (const size_t rank : {0, 1}) {
        handles[rank][name] =
            start(*two.clients[rank], std::to_string(name), kScalar, &data[rank][name]);
        if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(40));
      }
    // The memory is shared with the daemon: sums show in it though nobody calls anything.
    const auto end = std::chrono::steady_clock::now() + kPatience;
    const volatile float& last = data[0][kNames - 1];
    while (trial % 2 == 0 && last != 2 && std::chrono::steady_clock::now() < end)
      std::this_thread::yield();
    if (trial % 2 == 0) CHECK(last == 2);
    for (const size_t rank : {0, 1})
      for (size_t name = 0; name < kNames; ++name) {
        REQUIRE(two.clients[rank]->wait(handles[rank][name], kPatience).isOk());
        CHECK(data[rank][name] == 2);
      }
  }
}

TEST_CASE("an outcome comes to one that only polls") {
  DaemonFixture daemon;
  TwoRanks two(daemon);
  REQUIRE(two.areOpen());
  float data[2] = {1, 2};
  const uint64_t first = start(*two.clients[0], "x", kScalar, &data[0]);
  const uint64_t second = start(*two.clients[1], "x", kScalar, &data[1]);
  const auto isDone = [](Client& client, uint64_t handle) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      const auto polled = client.poll(handle);
      if (!polled.isOk() || polled.value()) return polled.isOk();
    }
    return false;
  };
  CHECK(isDone(*two.clients[0], first));
  CHECK(isDone(*two.clients[1], second));
}

TEST_CASE("a snapshot shows an operation for which nobody has woken the daemon") {
  DaemonFixture daemon;
  TwoRanks two(daemon);
  REQUIRE(two.areOpen());
  const size_t starter = GENERATE(0, 1);
  float data = 1;
  REQUIRE(start(*two.clients[starter], "x", kScalar, &data) != 0);
  const auto state = daemon.state();
  REQUIRE(state.jobs.size() == 1);
  REQUIRE(state.jobs[0].pending.size() == 1);
  CHECK(state.jobs[0].pending[0].name == "x");
  CHECK(state.jobs[0].pending[0].present == std::vector<int>{static_cast<int>(starter)});
  CHECK(state.jobs[0].pending[0].missing == std::vector<int>{static_cast<int>(1 - starter)});
}

TEST_CASE("thousands of operations started without a wait get through a ring that is smaller") {
  DaemonFixture daemon;
  TwoRanks two(daemon);
  REQUIRE(two.areOpen());
  constexpr size_t kNames = 3000;
  std::vector<float> data(2 * kNames, 1.0F);
  std::vector<uint64_t> handles(kNames);
  for (size_t name = 0; name < kNames; ++name)
    handles[name] = start(*two.clients[0], std::to_string(name), kScalar, &data[name]);
  for (size_t name = 0; name < kNames; ++name)
    REQUIRE(start(*two.clients[1], std::to_string(name), kScalar, &data[kNames + name]) != 0);
  for (size_t name = 0; name < kNames; ++name)
    REQUIRE(two.clients[0]->wait(handles[name], kPatience).isOk());
  CHECK(std::all_of(data.begin(), data.begin() + kNames, [](float sum) { return sum == 2; }));
}
