// SPDX-License-Identifier: Apache-2.0
#include "shm/process_barrier.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

namespace {

using rueda::shm::processBarrier;
using rueda::shm::registerForProcessBarrier;

}  // namespace

TEST_CASE("registering twice is registering, and a barrier without anybody else returns") {
  const bool first = registerForProcessBarrier();
  CHECK(registerForProcessBarrier() == first);
  processBarrier();
}

TEST_CASE("of a plain store and a barrier that cross, one sees the other") {
  // The frequent side stores and loads without a fence; the rare side pays for both. Without the
  // barrier both may miss each other, within a few thousand rounds on any machine with two cores.
  if (!registerForProcessBarrier()) return;  // Then the product fences by itself.
  constexpr int kRounds = 3000;
  std::atomic<int> round{0};
  std::atomic<int> ready{0};
  std::atomic<int> frequent{0};
  std::atomic<int> rare{0};
  int frequentSaw = 0;
  int missed = 0;
  std::thread peer([&] {
    for (int i = 1; i <= kRounds; ++i) {
      while (round.load(std::memory_order_acquire) != i) {
      }
      frequent.store(i, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      frequentSaw = rare.load(std::memory_order_relaxed);
      ready.store(i, std::memory_order_release);
    }
  });
  for (int i = 1; i <= kRounds; ++i) {
    round.store(i, std::memory_order_release);
    rare.store(i, std::memory_order_relaxed);
    processBarrier();
    const int rareSaw = frequent.load(std::memory_order_relaxed);
    while (ready.load(std::memory_order_acquire) != i) {
    }
    if (rareSaw != i && frequentSaw != i) ++missed;
  }
  peer.join();
  CHECK(missed == 0);
}
