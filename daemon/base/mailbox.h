// SPDX-License-Identifier: Apache-2.0
#pragma once

// A bounded queue from many threads to one event loop, with an eventfd that the loop waits on.
// post() never blocks; a full mailbox refuses, and the sender says what that means.

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "daemon/base/mutex.h"
#include "shm/fd.h"

namespace rueda::base {

template <typename T>
class Mailbox {
 public:
  explicit Mailbox(size_t capacity)
      : wakeup_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), capacity_(capacity) {}

  // Any thread. False when `capacity` items wait.
  bool post(T item) {
    {
      MutexLock lock(mutex_);
      if (items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
      if (items_.size() > 1) return true;  // The loop has been told already.
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof one);
    return true;
  }

  // The loop's thread, when fd() is readable: everything that waits, oldest first.
  std::vector<T> takeAll() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wakeup_.get(), &count, sizeof count);
    std::vector<T> taken;
    MutexLock lock(mutex_);
    taken.swap(items_);
    return taken;
  }

  int fd() const { return wakeup_.get(); }

 private:
  shm::Fd wakeup_;
  const size_t capacity_;
  Mutex mutex_;
  std::vector<T> items_ RUEDA_GUARDED_BY(mutex_);
};

}  // namespace rueda::base
