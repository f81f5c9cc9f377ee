// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the tests of serve/ and of ruedactl share: an engine that answers as told, a state worth
// looking at, and a folder with names short enough for sockets.

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <string>

#include "daemon/base/mutex.h"
#include "daemon/flow/engine_port.h"

namespace rueda::serve::test {

// Answers with the view set last; when stuck, only its caller's timeout ends the wait.
class FakeEngine final : public flow::EnginePort {
 public:
  void set(flow::StateView view) {
    base::MutexLock lock(mutex_);
    view_ = std::move(view);
  }
  void setStuck(bool stuck) {
    base::MutexLock lock(mutex_);
    stuck_ = stuck;
    changed_.notify_all();
  }
  int snapshots() const { return snapshots_.load(); }

  shm::Result<flow::StateView> snapshot(std::chrono::milliseconds timeout) override {
    ++snapshots_;
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    base::MutexLock lock(mutex_);
    while (stuck_) {
      if (changed_.wait_until(mutex_, deadline) == std::cv_status::timeout) {
        return shm::Status(
            shm::Code::kDeadlineExceeded,
            "the engine did not answer within " + std::to_string(timeout.count()) + " ms");
      }
    }
    return view_;
  }

 private:
  base::Mutex mutex_;
  std::condition_variable_any changed_;  // Waits with a deadline.
  flow::StateView view_ RUEDA_GUARDED_BY(mutex_);
  bool stuck_ RUEDA_GUARDED_BY(mutex_) = false;
  std::atomic<int> snapshots_{0};
};

// A healthy daemon with one job of three ranks: ranks 0 and 1 wait for rank 2, which is stopped.
inline flow::StateView stuckJobView() {
  flow::StateView view;
  view.version = "0.1.0";
  view.socket = "/run/rueda/rueda.sock";
  view.pid = 321;
  view.uptimeMs = 7'380'000;
  view.residentBytes = 43 << 20;
  view.sharedBytes = 3ull << 30;
  view.openFds = 31;
  view.threads = 9;
  view.sessionsAccepted = 12;
  view.sessionsRejected = 1;
  view.ranksLost = 2;
  for (const char* part : {"ipc", "engine", "workers", "memory"}) {
    view.health.push_back({part, true, ""});
  }
  flow::JobView job;
  job.id = "train-7";
  job.uid = 1000;
  job.size = 3;
  job.generation = 4;
  job.state = "running";
  job.opsCompleted = 1200;
  job.opsDirect = 90000;
  job.opsFailed = 1;
  job.bytesReduced = 5'000'000'000;
  for (int rank = 0; rank < 3; ++rank) {
    job.ranks.push_back({rank, 4700 + rank, "hostA", 1u << 20, 601, 90000, 600, "running"});
  }
  job.pending.push_back(
      {"layer1.weight", "allreduce", "float32", "[3, 4]", {0, 1}, {2}, {2}, 12'340});
  job.pending.push_back({"layer2.weight", "allreduce", "float32", "[8]", {0}, {1, 2}, {2}, 800});
  view.jobs.push_back(job);
  return view;
}

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/rueda-XXXXXX";
    if (mkdtemp(name) != nullptr) path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A name that no other test uses.
inline std::string privateName(const std::string& what) {
  return "rueda-" + what + "-" + std::to_string(getpid());
}

}  // namespace rueda::serve::test
