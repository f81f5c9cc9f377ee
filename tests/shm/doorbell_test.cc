// SPDX-License-Identifier: Apache-2.0
#include "shm/doorbell.h"

#include <signal.h>
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <new>
#include <thread>

#include "tests/kit/child.h"

namespace {

using rueda::shm::Bell;
using rueda::shm::BellSleep;
using rueda::shm::ring;
using rueda::shm::ringAlways;
using rueda::shm::WaitResult;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A bell and a word in memory that forked children share.
struct Shared {
  Bell bell;
  std::atomic<uint32_t> word;
};

class SharedMemory {
 public:
  SharedMemory()
      : shared_(new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Shared{}) {}
  ~SharedMemory() { ::munmap(shared_, sizeof(Shared)); }
  Shared* operator->() { return shared_; }

 private:
  Shared* shared_;
};

}  // namespace

TEST_CASE("a bell that nobody waits for is not rung") {
  Bell bell{};
  ring(bell);
  CHECK(bell.value.load() == 0);
  ringAlways(bell);
  CHECK(bell.value.load() == 1);
}

TEST_CASE("a sleep without a ring ends by its time") {
  Bell bell{};
  BellSleep sleep(bell);
  CHECK(sleep.wait(microseconds(1)) == WaitResult::kTimedOut);
  CHECK(sleep.wait(milliseconds(5)) == WaitResult::kTimedOut);
}

TEST_CASE("a ring between the announcement and the sleep is not lost") {
  Bell bell{};
  BellSleep sleep(bell);
  ring(bell);
  CHECK(sleep.wait(seconds(30)) == WaitResult::kWoken);
  CHECK(sleep.wait(microseconds(1)) == WaitResult::kTimedOut);  // Once.
}

TEST_CASE("a sleeper announces itself for its lifetime") {
  Bell bell{};
  {
    BellSleep one(bell);
    BellSleep two(bell);
    CHECK(bell.sleepers.load() == 2);
  }
  CHECK(bell.sleepers.load() == 0);
}

TEST_CASE("every sleeper hears one ring") {
  Bell bell{};
  std::atomic<int> announced{0};
  std::atomic<int> woken{0};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 4; ++i)
    sleepers.emplace_back([&] {
      BellSleep sleep(bell);
      ++announced;
      if (sleep.wait(seconds(30)) == WaitResult::kWoken) ++woken;
    });
  while (announced.load() < 4) std::this_thread::yield();
  ring(bell);
  for (std::thread& sleeper : sleepers) sleeper.join();
  CHECK(woken.load() == 4);
}

TEST_CASE("no wake-up is lost between two that pass a word to and fro") {
  Bell bells[2] = {};
  std::atomic<int> turn{0};
  constexpr int kTurns = 20000;
  std::atomic<int> timeouts{0};
  const auto player = [&](int me) {
    for (int i = me; i < kTurns; i += 2) {
      BellSleep sleep(bells[me]);
      while (turn.load(std::memory_order_seq_cst) != i)
        if (sleep.wait(seconds(30)) == WaitResult::kTimedOut) ++timeouts;
      turn.store(i + 1, std::memory_order_seq_cst);
      ring(bells[1 - me]);
    }
  };
  std::thread one(player, 0);
  std::thread two(player, 1);
  one.join();
  two.join();
  CHECK(turn.load() == kTurns);
  CHECK(timeouts.load() == 0);
}

TEST_CASE("a bell wakes another process, and a killed sleeper costs others nothing") {
  SharedMemory shared;
  {
    rueda::kit::Child victim([&] {
      BellSleep sleep(shared->bell);
      shared->word.store(1);
      (void)sleep.wait(seconds(60));
      return 1;
    });
    while (shared->word.load() != 1) std::this_thread::yield();
    victim.kill(SIGKILL);
    victim.wait();
  }
  CHECK(shared->bell.sleepers.load() == 1);  // It can only be too high.
  rueda::kit::Child sleeper([&] {
    BellSleep sleep(shared->bell);
    shared->word.store(2);
    return sleep.wait(seconds(60)) == WaitResult::kWoken ? 0 : 1;
  });
  while (shared->word.load() != 2) std::this_thread::yield();
  ring(shared->bell);
  CHECK(sleeper.wait() == 0);
}
