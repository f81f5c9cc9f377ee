// SPDX-License-Identifier: Apache-2.0
#pragma once

// The shared words of bench_prototype.cc: a counter that others wait for, and what one rank shows
// to the others. Lives in a file mapped by every rank; all-zero bytes are its initial state.

#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <atomic>
#include <climits>

#include "tests/bench/bench_common.h"

namespace rueda::bench {

// How a rank waits: spins for 20 us (the span in which the partner of a 64 KiB sum arrives), with a
// pause where each rank has a core, else yielding; then sleeps.
class WaitPolicy {
 public:
  explicit WaitPolicy(bool crowded) : crowded_(crowded) {}
  void relax(unsigned spin) const {
    if (crowded_ && spin % 8 == 7) {
      sched_yield();
    } else {
      _mm_pause();
    }
  }
  static constexpr uint64_t kSpinNs = 20'000;

 private:
  const bool crowded_;
};

// Grows only. One writer, any number of waiters.
struct alignas(64) Counter {
  std::atomic<uint32_t> value;
  std::atomic<uint32_t> sleepers;

  bool reached(uint32_t wanted) const {
    // Pairs with the release in publish(): the writer's data is seen with its number.
    return int32_t(value.load(std::memory_order_acquire) - wanted) >= 0;
  }

  void publish(uint32_t next) {
    // Sequentially consistent with the sleeper's increment: either the writer sees the sleeper, or
    // the sleeper sees the new value and does not sleep.
    value.store(next, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) {
      syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }

  void wait(uint32_t wanted, const WaitPolicy& policy) {
    if (reached(wanted)) return;
    const uint64_t end = nowNs() + WaitPolicy::kSpinNs;
    do {
      for (unsigned spin = 0; spin < 32; ++spin) {
        if (reached(wanted)) return;
        policy.relax(spin);
      }
    } while (nowNs() < end);
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    for (uint32_t seen = value.load(std::memory_order_seq_cst); int32_t(seen - wanted) < 0;
         seen = value.load(std::memory_order_seq_cst)) {
      syscall(SYS_futex, &value, FUTEX_WAIT, seen, nullptr, nullptr, 0);
    }
    sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
};

constexpr int kMaxPrototypeRanks = 8;
constexpr size_t kInlineBytes = 56;      // What fits beside the number in one cache line.
constexpr size_t kCopyBytes = 4096;      // Largest payload that is exchanged by copies.
constexpr uint32_t kPostedAtOnce = 256;  // More than ResNet-50's 161.

// A payload that travels in the cache line of its flag.
struct alignas(64) InlineLine {
  std::atomic<uint32_t> sequence;
  char payload[kInlineBytes];
};

// Everything that one rank shows to the others, tensors apart.
struct RankWords {
  Counter posted;       // Operations whose slice is in `slices`.
  Counter finished;     // Operations of which this rank has summed its part.
  Counter copied;       // Copies that lie in `copies`.
  InlineLine lines[2];  // By parity of the operation: a rank is at most one ahead.
  alignas(64) char copies[2][kCopyBytes];
  Slice slices[kPostedAtOnce];
};

struct Board {
  RankWords ranks[kMaxPrototypeRanks];
};

}  // namespace rueda::bench
