// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a thread waits for something that another process writes: spin for about as long as a wake-up
// costs, then sleep on a bell. Which spin is right depends on whether ranks share cores.

#include <atomic>
#include <chrono>
#include <functional>
#include <utility>

#include "client/cpp/connection.h"

namespace rueda::client {

enum class Waited { kReady, kFailed, kInterrupted, kTimedOut };

class Patience {
  using Clock = std::chrono::steady_clock;

 public:
  // `connection` outlives this. `interrupted` may be empty.
  Patience(Connection& connection, std::function<bool()> interrupted);

  // For answers of the daemon that come whatever becomes of the job: until `ready()`, an interrupt,
  // or the daemon's end.
  Waited untilAnswered(const std::function<bool()>& ready, shm::Bell& bell);

  // Until `ready()`, the session's failure or an interrupt. `ready` is asked before the failure:
  // what is complete counts, even if the job has ended since. `notice()` is called once when the
  // wait has lasted long enough (1 ms) to tell the daemon about it.
  template <typename Ready, typename Notice>
  Waited until(const Ready& ready, shm::Bell& bell, const Notice& notice) {
    for (int i = 0; i < kQuickLooks; ++i)
      if (ready()) return Waited::kReady;
    if (spin(ready, !spare_)) return Waited::kReady;
    return sleep([&ready] { return ready(); }, bell, [&notice] { notice(); }, {});
  }

  // As until, for what the daemon does: that may need this core, so the spin yields. `settle()` is
  // called before the thread sleeps.
  template <typename Ready, typename Settle, typename Notice>
  Waited untilCompleted(const Ready& ready, shm::Bell& bell, const Settle& settle,
                        const Notice& notice, std::chrono::milliseconds timeout) {
    if (ready() || spin(ready, true)) return Waited::kReady;
    settle();
    return sleep([&ready] { return ready(); }, bell, [&notice] { notice(); }, timeout);
  }

 private:
  template <typename Ready>
  bool spin(const Ready& ready, bool yields) {
    return yields ? spinYielding(ready) : spinPausing(ready);
  }
  template <typename Ready>
  bool spinPausing(const Ready& ready) {
    const auto end = Clock::now() + spinTime_;
    do {
      for (int i = 0; i < kPausesPerLook; ++i) {
        if (ready()) return true;
        __builtin_ia32_pause();
      }
    } while (Clock::now() < end);
    return false;
  }
  // Where somebody else computes on this core a yield gives it away for a whole slice, some
  // milliseconds, while who sleeps is woken at once. Noticed once, it is not tried again for a
  // while.
  template <typename Ready>
  bool spinYielding(const Ready& ready) {
    auto now = Clock::now();
    const auto end = now + spinTime_;
    while (!ready()) {
      if (now >= end || isCrowded(now)) return false;
      yield();
      const auto before = std::exchange(now, Clock::now());
      noteYield(before, now);
    }
    return true;
  }
  bool isCrowded(Clock::time_point now) const {
    return now.time_since_epoch().count() < crowdedUntil_.load(std::memory_order_relaxed);
  }
  void noteYield(Clock::time_point before, Clock::time_point after) {
    if (__builtin_expect(after - before > kLongYield, 0)) noteCrowd(after);
  }
  void noteCrowd(Clock::time_point now);
  static void yield();
  Waited sleep(const std::function<bool()>& ready, shm::Bell& bell,
               const std::function<void()>& notice, std::chrono::milliseconds timeout);

  static constexpr int kQuickLooks = 64;     // Without pause or clock: a peer that is just as fast.
  static constexpr int kPausesPerLook = 16;  // A look at the clock costs as much as these.
  static constexpr std::chrono::microseconds kLongYield{500};  // Ranks that wait take a few.

  Connection& connection_;
  const std::function<bool()> interrupted_;
  const bool spare_;
  const std::chrono::microseconds spinTime_;
  // Relaxed, by any thread: a hint.
  std::atomic<int64_t> crowdedUntil_{0};  // Ticks of Clock.
  std::atomic<int64_t> crowdedFor_{0};    // The last such span, in ticks.
};

}  // namespace rueda::client
