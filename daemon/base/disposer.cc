// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/disposer.h"

#include <pthread.h>

#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/base/mutex.h"

namespace rueda::base {

class Disposer::ThreadQueue : public Disposer::Queue,
                              public std::enable_shared_from_this<ThreadQueue> {
 public:
  void take(std::shared_ptr<void> thing) override {
    {
      MutexLock lock(mutex_);
      things_.push_back(std::move(thing));
    }
    if (start()) return wakeup_.notify_one();
    std::vector<std::shared_ptr<void>> here;  // No thread to be had: here then.
    MutexLock lock(mutex_);
    here.swap(things_);
  }

  // False if there can be no thread.
  bool start() override {
    MutexLock lock(mutex_);
    if (started_ || ended_) return true;
    try {
      std::thread([self = shared_from_this()] { self->run(); }).detach();
      started_ = true;
    } catch (const std::system_error&) {
    }
    return started_;
  }

  void end() override {
    MutexLock lock(mutex_);
    ended_ = true;
    wakeup_.notify_one();
  }

 private:
  void run() {
    pthread_setname_np(pthread_self(), "disposer");
    for (;;) {
      std::vector<std::shared_ptr<void>> taken;
      {
        MutexLock lock(mutex_);
        while (things_.empty() && !ended_) wakeup_.wait(mutex_);
        if (things_.empty()) return;
        taken.swap(things_);
      }
      taken.clear();  // Destroys them.
    }
  }

  Mutex mutex_;
  Condition wakeup_;
  std::vector<std::shared_ptr<void>> things_ RUEDA_GUARDED_BY(mutex_);
  bool started_ RUEDA_GUARDED_BY(mutex_) = false;
  bool ended_ RUEDA_GUARDED_BY(mutex_) = false;
};

Disposer::Disposer(bool atOnce) : queue_(std::make_shared<ThreadQueue>()) {
  if (atOnce) (void)queue_->start();
}

Disposer::~Disposer() { queue_->end(); }

}  // namespace rueda::base
