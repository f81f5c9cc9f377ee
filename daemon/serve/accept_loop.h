// SPDX-License-Identifier: Apache-2.0
#pragma once

// The thread that takes in connections of operators and hands them on. It reads no byte of them and
// sleeps while nobody connects.

#include <functional>
#include <thread>
#include <vector>

#include "daemon/serve/listen_socket.h"
#include "shm/fd.h"
#include "shm/status.h"

namespace rueda::serve {

class AcceptLoop {
 public:
  // Called on the loop's thread with an allowed, non-blocking connection; must not block.
  using Take = std::function<void(shm::Fd)>;

  AcceptLoop(std::vector<ListenSocket> sockets, Take take);
  ~AcceptLoop();
  AcceptLoop(const AcceptLoop&) = delete;
  AcceptLoop& operator=(const AcceptLoop&) = delete;

  // Starts the thread; until then connections wait in the kernel's queue. Call once.
  // kResourceExhausted when out of descriptors.
  shm::Status start();

  // Ends the thread, then closes the sockets, so that new connections are refused and no longer
  // queued for nobody. Idempotent.
  void stop();

 private:
  void run();
  // One batch from one socket. False when descriptors have run out.
  bool drain(const ListenSocket& socket);

  std::vector<ListenSocket> sockets_;
  const Take take_;
  shm::Fd stopEvent_;
  std::thread thread_;
};

}  // namespace rueda::serve
