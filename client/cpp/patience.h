// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a thread waits for something that another process writes: spin for about as long as a wake-up
// costs, then sleep on a bell. Which spin is right depends on whether ranks share cores.

#include <functional>

#include "client/cpp/connection.h"

namespace rueda::client {

enum class Waited { kReady, kFailed, kInterrupted, kTimedOut };

class Patience {
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
    const auto end = std::chrono::steady_clock::now() + spinTime_;
    do {
      for (int i = 0; i < kPausesPerLook; ++i) {
        if (ready()) return true;
        if (yields)
          yield();
        else
          __builtin_ia32_pause();
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }
  static void yield();
  Waited sleep(const std::function<bool()>& ready, shm::Bell& bell,
               const std::function<void()>& notice, std::chrono::milliseconds timeout);

  static constexpr int kQuickLooks = 64;     // Without pause or clock: a peer that is just as fast.
  static constexpr int kPausesPerLook = 16;  // A look at the clock costs as much as these.

  Connection& connection_;
  const std::function<bool()> interrupted_;
  const bool spare_;
  const std::chrono::microseconds spinTime_;
};

}  // namespace rueda::client
