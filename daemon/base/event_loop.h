// SPDX-License-Identifier: Apache-2.0
#pragma once

// epoll behind three calls: watch a descriptor under a tag, forget it, wait for what is ready. One
// thread owns it.

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "shm/fd.h"
#include "shm/status.h"

namespace rueda::base {

// What a descriptor belongs to: chosen by the owner of the loop.
struct Tag {
  uint32_t kind = 0;
  uint64_t id = 0;  // At most 2^56 - 1.
};

struct Ready {
  Tag tag;
  bool readable = false;
  bool writable = false;
  bool hangup = false;
};

class EventLoop {
 public:
  EventLoop();
  shm::Status watch(int fd, Tag tag, bool writable = false);
  // Ready once for every time that `fd` becomes readable, or is written if it is an eventfd. For
  // descriptors that are never read.
  shm::Status watchEdges(int fd, Tag tag);
  void changeWatch(int fd, Tag tag, bool writable);
  void forget(int fd);
  // Waits until something is ready, or for `timeout` (none: for ever; before Linux 5.11 rounded up
  // to milliseconds). At most 256 at once.
  std::vector<Ready> wait(std::optional<std::chrono::microseconds> timeout);

 private:
  shm::Fd epoll_;
};

}  // namespace rueda::base
