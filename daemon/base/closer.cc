// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/closer.h"

#include <pthread.h>

#include <condition_variable>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/mutex.h"

namespace rueda::base {

struct Closer::Queue {
  Mutex mutex;
  std::condition_variable_any wakeup;
  std::vector<shm::Fd> fds RUEDA_GUARDED_BY(mutex);
  bool ended RUEDA_GUARDED_BY(mutex) = false;
};

void Closer::close(shm::Fd fd) {
  if (!onThread_ || !fd.valid()) return;  // The argument's end closes it.
  if (!queue_) {
    queue_ = std::make_shared<Queue>();
    std::thread(run, queue_).detach();
  }
  {
    MutexLock lock(queue_->mutex);
    queue_->fds.push_back(std::move(fd));
  }
  queue_->wakeup.notify_one();
}

Closer::~Closer() {
  if (!queue_) return;
  {
    MutexLock lock(queue_->mutex);
    queue_->ended = true;
  }
  queue_->wakeup.notify_one();
}

void Closer::run(const std::shared_ptr<Queue>& queue) {
  pthread_setname_np(pthread_self(), "closer");
  for (;;) {
    std::vector<shm::Fd> taken;
    {
      MutexLock lock(queue->mutex);
      while (queue->fds.empty() && !queue->ended) queue->wakeup.wait(queue->mutex);
      if (queue->fds.empty()) return;
      taken.swap(queue->fds);
    }
    taken.clear();  // Closes them.
  }
}

}  // namespace rueda::base
