// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/patience.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "shm/process_barrier.h"

namespace rueda::client {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// Longer than any usual wait for a peer that shares the core; short enough that the daemon knows of
// a deadlock "at once".
constexpr milliseconds kFirstSleep{1};
// How often a sleeper looks whether the daemon lives and whether it was interrupted.
constexpr milliseconds kSleepSlice{100};
// Short, since a single long yield may be chance: something ran for a moment; long, so that a slice
// of 4 ms for each span does not count.
constexpr steady_clock::duration kFirstCrowd = milliseconds(20);
constexpr steady_clock::duration kLongestCrowd = milliseconds(1000);

}  // namespace

Patience::Patience(Connection& connection, std::function<bool()> interrupted)
    : connection_(connection),
      interrupted_(std::move(interrupted)),
      spare_(connection.policy().spareCores != 0),
      spinTime_(connection.policy().spinMicros) {}

void Patience::yield() { ::sched_yield(); }

// Twice as long each time, so that the slices lost (4 ms each) come to less than a hundredth in the
// end; from the start again when it has been quiet for as long.
void Patience::noteCrowd(Clock::time_point now) {
  const int64_t ticks = now.time_since_epoch().count();
  const int64_t last = crowdedFor_.load(std::memory_order_relaxed);
  const bool isNew = ticks > crowdedUntil_.load(std::memory_order_relaxed) + last;
  const int64_t span = isNew ? kFirstCrowd.count() : std::min(2 * last, kLongestCrowd.count());
  crowdedFor_.store(span, std::memory_order_relaxed);
  crowdedUntil_.store(ticks + span, std::memory_order_relaxed);
}

Waited Patience::untilAnswered(const std::function<bool()>& ready, shm::Bell& bell) {
  shm::BellSleep sleeper(bell);
  for (;;) {
    if (ready()) return Waited::kReady;
    if (connection_.isLost()) return Waited::kFailed;
    if (sleeper.wait(kSleepSlice) == shm::WaitResult::kWoken) continue;
    connection_.pump();
    if (interrupted_ && interrupted_()) return Waited::kInterrupted;
  }
}

Waited Patience::sleep(const std::function<bool()>& ready, shm::Bell& bell,
                       const std::function<void()>& notice, milliseconds timeout) {
  const auto begin = steady_clock::now();
  shm::BellSleep sleeper(bell);
  // Peers with cores of their own post without a fence: this puts one there.
  if (spare_) shm::processBarrier();
  bool noticed = false;
  for (;;) {
    if (ready()) return Waited::kReady;
    if (connection_.hasFailed()) return Waited::kFailed;
    if (connection_.board()->abort.load(std::memory_order_acquire) != 0) {
      (void)connection_.awaitFailure();
      return ready() ? Waited::kReady : Waited::kFailed;
    }
    const auto elapsed = steady_clock::now() - begin;
    if (timeout.count() > 0 && elapsed >= timeout) return Waited::kTimedOut;
    if (!noticed && elapsed >= kFirstSleep) {
      noticed = true;
      notice();
      continue;  // The notice may have taken a while.
    }
    const auto slice = noticed ? kSleepSlice : kFirstSleep;
    const auto woken = sleeper.wait(std::chrono::duration_cast<microseconds>(slice));
    if (woken == shm::WaitResult::kWoken) continue;
    connection_.pump();
    if (interrupted_ && noticed && interrupted_()) return Waited::kInterrupted;
  }
}

}  // namespace rueda::client
