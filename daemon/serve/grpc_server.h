// SPDX-License-Identifier: Apache-2.0
#pragma once

// The gRPC face of the daemon for operators: rueda.v1.Status, standard health, reflection. Its
// threads own nothing of the engine and wait for it with a deadline; a stuck or flooded server does
// not slow a training job. gRPC's headers stay out of here.

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <string>

#include "daemon/flow/engine_port.h"
#include "daemon/serve/snapshot_feed.h"
#include "shm/status.h"

namespace rueda::serve {

struct GrpcServerOptions {
  // "unix:/run/rueda/status.sock" (a file with socketMode: user and group may ask), or
  // "unix-abstract:rueda-x.status" (the daemon's user and root may ask). Required.
  std::string unixAddress;
  mode_t socketMode = 0660;
  // "127.0.0.1:7707", "[::1]:7707"; port 0: any free one. Empty: none, the default, since every
  // user of the host may ask there.
  std::string tcpAddress;
  bool insecureTcp = false;  // Allows a tcpAddress that other hosts reach, without protection.
  SnapshotFeedOptions snapshots;
  // How often a health watcher is given the chance to see a change.
  std::chrono::milliseconds watchInterval{1000};
  // How long stop() lets calls end by themselves; those that wait for a snapshot are answered
  // before it, so only streams (health watch, reflection) use it up.
  std::chrono::milliseconds shutdownGrace{100};
};

class GrpcServer {
 public:
  // Listens and serves; returns when a client can call. Borrows the engine, which must outlive
  // stop(). Takes a few milliseconds. Errors: those of ListenSocket, and kInternal when gRPC
  // refuses; *tcpFailed, if given, tells whether it was the tcpAddress.
  static shm::Result<std::unique_ptr<GrpcServer>> start(flow::EnginePort& engine,
                                                        const GrpcServerOptions& options,
                                                        bool* tcpFailed = nullptr);
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Takes no more connections and removes the socket, answers waiting calls with UNAVAILABLE, ends
  // streams, joins all threads. Bounded by snapshots.timeout + shutdownGrace. Idempotent; not from
  // a gRPC thread.
  void stop();

  int tcpPort() const;  // 0 without a tcpAddress.

 private:
  struct Parts;
  explicit GrpcServer(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace rueda::serve
