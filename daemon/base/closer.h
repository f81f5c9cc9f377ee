// SPDX-License-Identifier: Apache-2.0
#pragma once

// Closes descriptors that come from strangers: close() can block for as long as they like (a TCP
// socket with SO_LINGER and a peer that does not read).

#include <memory>

#include "shm/fd.h"

namespace rueda::base {

class Closer {
 public:
  // False: closes in the calling thread, for when no stranger can have had a hand in it. True: on a
  // thread of its own, which the first descriptor starts.
  explicit Closer(bool onThread) : onThread_(onThread) {}
  Closer(const Closer&) = delete;
  Closer& operator=(const Closer&) = delete;
  // Does not wait: what is being closed stays behind, until the process ends at the latest.
  ~Closer();

  // Takes the descriptor. One thread, does not block if onThread.
  void close(shm::Fd fd);

 private:
  struct Queue;
  static void run(const std::shared_ptr<Queue>& queue);

  const bool onThread_;
  std::shared_ptr<Queue> queue_;  // Shared with the thread.
};

}  // namespace rueda::base
