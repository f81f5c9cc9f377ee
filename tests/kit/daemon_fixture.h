// SPDX-License-Identifier: Apache-2.0
#pragma once

// A daemon without its status service in this process: the engine on a thread, listening on an
// abstract socket of its own, and ranks as threads with a client each. Owned by the test's thread.
//
// Bodies of ranks run on threads of their own, where no assertion of Catch2 may be used: they
// return what the test then asserts.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "daemon/engine/engine.h"

namespace rueda::kit {

// Longer than anything takes on a loaded machine under a sanitizer; reached only by failures.
constexpr std::chrono::seconds kPatience{30};

struct DaemonSetup {
  // `socket` and, when 0, the quota's bytes are filled in. Else these are what segments may take:
  // the boards of one job come on top.
  engine::EngineOptions engine;
  size_t workers = 2;
};

class DaemonFixture {
 public:
  explicit DaemonFixture(DaemonSetup setup = {});
  ~DaemonFixture();
  DaemonFixture(const DaemonFixture&) = delete;
  DaemonFixture& operator=(const DaemonFixture&) = delete;

  const std::string& socket() const { return socket_; }
  engine::Engine& engine() { return *engine_; }
  // How rank `rank` of `size` joins `job`.
  client::Options options(int rank, int size, const std::string& job = "job") const;

  flow::StateView state();
  // True as soon as a snapshot of the engine satisfies `wanted`; false after kPatience.
  bool eventually(const std::function<bool(const flow::StateView&)>& wanted);
  // Waits for the engine's thread to end; false if it has not within kPatience.
  bool awaitEnd();
  // Keeps the engine's thread from running, as if it were stopped, until resume(). Uses SIGUSR1.
  void pause();
  void resume();
  // Stops the engine at once, then the workers. Safe to call twice.
  void stop();

 private:
  std::string socket_;
  std::unique_ptr<execute::WorkerPool> workers_;
  std::unique_ptr<engine::Engine> engine_;
  std::atomic<bool> ended_{false};
  std::atomic<pid_t> tid_{0};
  std::thread thread_;
};

// What a rank has to say; empty: all was well.
using RankBody = std::function<std::string(client::Client&, int rank)>;

// Opens one client for each of the `size` ranks on a thread of its own, runs `body` there, waits
// for the others and closes; a rank with something to say closes at once. The texts of the ranks
// that had something to say, one behind the other: "" when all was well.
std::string runRanks(const DaemonFixture& daemon, int size, const RankBody& body,
                     const std::function<void(client::Options*)>& adjust = nullptr);

// "" or "<what>: <status>".
std::string problem(const std::string& what, const shm::Status& status);

}  // namespace rueda::kit
