// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sleeping and waking. A Bell is a futex word for one kind of waiter in shared memory: its ringer
// makes no system call while nobody sleeps. Towards the daemon an eventfd is used instead, so that
// its loop can wait for many clients. Rule learned from a hang: one word per kind of waiter.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace rueda::shm {

// Lives in shared memory; 64 bytes, so that ringing does not disturb neighbours.
struct alignas(64) Bell {
  std::atomic<uint32_t> value;     // Bumped by ring().
  std::atomic<uint32_t> sleepers;  // Waiters that may be in the kernel. A hint only: a dead sleeper
                                   // leaves it too high, which costs a system call, not a wake-up.
  uint8_t reserved[56];
};
static_assert(sizeof(Bell) == 64 && offsetof(Bell, sleepers) == 4);

enum class WaitResult { kWoken, kTimedOut, kInterrupted };

// As ring, but always enters the kernel: for the daemon, which does not trust `sleepers`.
void ringAlways(Bell& bell);

// Wakes every sleeper of `bell`, if there is one. The caller has published what they wait for with
// a seq_cst (or locked) operation before, or sleepers call processBarrier() after announcing
// themselves. Either way the ringer sees the sleeper, or the sleeper sees the published state.
inline void ring(Bell& bell) {
  // Pairs with the increment in BellSleep. Were it to pass the caller's publication, a sleeper
  // would be missed for ever.
  if (__builtin_expect(bell.sleepers.load(std::memory_order_seq_cst) != 0, 0)) ringAlways(bell);
}

// Announces a sleeper for its lifetime. Use: construct, re-check the condition, then wait().
class BellSleep {
 public:
  explicit BellSleep(Bell& bell);
  ~BellSleep();
  BellSleep(const BellSleep&) = delete;
  BellSleep& operator=(const BellSleep&) = delete;

  // Sleeps until the bell rings after construction (or after the last wait), or the time is over.
  WaitResult wait(std::chrono::microseconds timeout);

 private:
  Bell& bell_;
  uint32_t seen_;
};

}  // namespace rueda::shm
