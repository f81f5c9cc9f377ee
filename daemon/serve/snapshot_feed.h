// SPDX-License-Identifier: Apache-2.0
#pragma once

// One thread that asks the engine for snapshots on behalf of all RPCs: whoever asks while an answer
// is fresh, or while one is being made, shares it, so a storm of scrapers costs the engine one
// snapshot per `maxAge`. RPC threads never block here, and the feed sleeps while nobody asks.

#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "daemon/base/mutex.h"
#include "daemon/flow/engine_port.h"
#include "daemon/flow/state_view.h"
#include "shm/status.h"

namespace rueda::serve {

struct SnapshotFeedOptions {
  // Operators are promised an answer within a second even when the engine is stuck; half of it.
  std::chrono::milliseconds timeout{500};
  // Invisible to people, yet 50 snapshots a second at most.
  std::chrono::milliseconds maxAge{20};
  // Above this many waiting requests, further ones are refused with kResourceExhausted.
  size_t maxWaiting = 1024;
};

class SnapshotFeed {
 public:
  using Snapshot = shm::Result<flow::StateView>;
  // The snapshot is valid during the call only. Must not block and must not call stop().
  using Answer = std::function<void(const Snapshot&)>;

  // Borrows the engine, which must outlive stop().
  SnapshotFeed(flow::EnginePort& engine, const SnapshotFeedOptions& options);
  ~SnapshotFeed();
  SnapshotFeed(const SnapshotFeed&) = delete;
  SnapshotFeed& operator=(const SnapshotFeed&) = delete;

  // Calls `answer` exactly once: on the feed's thread, or at once on the caller's when refused
  // (kResourceExhausted, or kUnavailable after stop()). Any thread.
  void request(Answer answer);

  // Answers all that wait with kUnavailable and ends the thread; takes at most `timeout`.
  // Idempotent; not from an Answer.
  void stop();

 private:
  void run();
  const Snapshot& fresh();

  flow::EnginePort& engine_;
  const SnapshotFeedOptions options_;

  base::Mutex mutex_;  // Never held while an Answer or the engine runs.
  base::Condition changed_;
  std::vector<Answer> waiting_ RUEDA_GUARDED_BY(mutex_);
  bool stopped_ RUEDA_GUARDED_BY(mutex_) = false;

  // Feed thread only. Failures are kept like answers, or a stuck engine would be asked in a row by
  // every waiting request.
  std::optional<Snapshot> latest_;
  std::chrono::steady_clock::time_point latestAt_;

  std::thread thread_;  // Last: starts when the rest is built.
};

}  // namespace rueda::serve
