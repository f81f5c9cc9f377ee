// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/snapshot_feed.h"

#include <pthread.h>

#include <string>
#include <utility>

namespace rueda::serve {

SnapshotFeed::SnapshotFeed(flow::EnginePort& engine, const SnapshotFeedOptions& options)
    : engine_(engine), options_(options), thread_([this] { run(); }) {}

SnapshotFeed::~SnapshotFeed() { stop(); }

void SnapshotFeed::request(Answer answer) {
  shm::Status refusal;
  {
    base::MutexLock lock(mutex_);
    if (stopped_) {
      refusal = {shm::Code::kUnavailable, "ruedad is shutting down"};
    } else if (waiting_.size() >= options_.maxWaiting) {
      refusal = {shm::Code::kResourceExhausted,
                 "more than " + std::to_string(options_.maxWaiting) + " status calls wait"};
    } else {
      waiting_.push_back(std::move(answer));
    }
  }
  if (refusal.isOk()) {
    changed_.notify_one();
  } else {
    answer(refusal);
  }
}

void SnapshotFeed::stop() {
  {
    base::MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void SnapshotFeed::run() {
  pthread_setname_np(pthread_self(), "status");
  std::vector<Answer> batch;
  for (;;) {
    bool stopped = false;
    {
      base::MutexLock lock(mutex_);
      while (!stopped_ && waiting_.empty()) changed_.wait(mutex_);
      batch.swap(waiting_);
      stopped = stopped_;
    }
    if (stopped) {
      const Snapshot closing = shm::Status(shm::Code::kUnavailable, "ruedad is shutting down");
      for (const Answer& answer : batch) answer(closing);
      return;  // Later requests are refused by request().
    }
    const Snapshot& snapshot = fresh();
    for (const Answer& answer : batch) answer(snapshot);
    batch.clear();
  }
}

const SnapshotFeed::Snapshot& SnapshotFeed::fresh() {
  if (!latest_ || std::chrono::steady_clock::now() - latestAt_ >= options_.maxAge) {
    latest_ = engine_.snapshot(options_.timeout);
    latestAt_ = std::chrono::steady_clock::now();
  }
  return *latest_;
}

}  // namespace rueda::serve
