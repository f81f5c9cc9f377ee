// SPDX-License-Identifier: Apache-2.0
#pragma once

// The wiring: builds every part of the daemon in dependency order and stops it in reverse. Owned
// and driven by the main thread.

#include <sys/types.h>

#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "daemon/config.h"
#include "daemon/engine/engine.h"
#include "daemon/serve/grpc_server.h"

namespace rueda::daemon {

class App {
 public:
  // Listens, starts the engine and the status service. *exitCode says what went wrong.
  static shm::Result<std::unique_ptr<App>> start(const Config& config, int* exitCode);
  ~App();

  // Any thread: drain, then end. A second call ends at once.
  void requestStop();
  // Readable when the engine has ended by itself or after requestStop.
  int endedFd() const { return ended_.get(); }
  // Stops every part in reverse order. Returns when all threads are joined.
  void stop();

  // The address of the status service that belongs to a client socket: "unix-abstract:x.status" for
  // "@x", "unix:/run/rueda/status.sock" for "/run/rueda/rueda.sock".
  static std::string statusAddress(const std::string& socket);

 private:
  explicit App(const Config& config) : config_(config) {}

  const Config config_;
  shm::Fd ended_;
  std::optional<std::pair<dev_t, ino_t>> socketFile_;  // The one that we made, and remove.
  std::unique_ptr<execute::WorkerPool> workers_;
  std::unique_ptr<engine::Engine> engine_;
  std::thread engineThread_;
  std::unique_ptr<serve::GrpcServer> server_;
};

}  // namespace rueda::daemon
