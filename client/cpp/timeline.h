// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes a trace of operations to a file by a thread of its own, which lives from start() to
// stop(). Any thread; who records waits neither for the disk nor for the writer.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "client/cpp/trace_events.h"
#include "shm/status.h"

namespace rueda::client {

class Timeline {
 public:
  Timeline();
  ~Timeline();  // As stop(), without a word.

  // Makes or empties the file. One line on standard error if a timeline runs: that goes on.
  // kInvalidArgument names the path and why it cannot be written.
  shm::Status start(const std::string& path, bool marksCycles);
  // The file is complete afterwards. One line on standard error if none runs.
  void stop();
  // The writer is not in this process: nothing is written any more, nothing freed.
  void leaveToParent();

  // Orders nothing: what is recorded late is dropped. False also after a failed write.
  bool isRunning() const { return isRunning_.load(std::memory_order_relaxed); }
  // Dropped where none runs, and where kMaxQueued wait to be written (one line says so).
  void record(TimedOperation operation);

  static constexpr size_t kMaxQueued = 1 << 16;  // About 30 MB.

 private:
  struct Writer;  // What the thread uses.

  bool end();

  std::atomic<bool> isRunning_{false};
  std::mutex switching_;  // Held by start() and stop().
  std::mutex mutex_;
  std::unique_ptr<Writer> writer_;  // Guarded by mutex_.
};

// One line on standard error.
void logTimeline(const std::string& text);

}  // namespace rueda::client
