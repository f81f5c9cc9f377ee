// SPDX-License-Identifier: Apache-2.0
#pragma once

// A mutex, lock and condition that clang's -Wthread-safety understands. Held over no callback, no
// I/O and no logging.

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define RUEDA_CAPABILITY(x) __attribute__((capability(x)))
#define RUEDA_SCOPED __attribute__((scoped_lockable))
#define RUEDA_GUARDED_BY(x) __attribute__((guarded_by(x)))
#define RUEDA_REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define RUEDA_ACQUIRE(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define RUEDA_RELEASE(...) __attribute__((release_capability(__VA_ARGS__)))
#else
#define RUEDA_CAPABILITY(x)
#define RUEDA_SCOPED
#define RUEDA_GUARDED_BY(x)
#define RUEDA_REQUIRES(...)
#define RUEDA_ACQUIRE(...)
#define RUEDA_RELEASE(...)
#endif

namespace rueda::base {

class RUEDA_CAPABILITY("mutex") Mutex {
 public:
  void lock() RUEDA_ACQUIRE() { mutex_.lock(); }
  void unlock() RUEDA_RELEASE() { mutex_.unlock(); }

 private:
  friend class Condition;
  std::mutex mutex_;
};

class RUEDA_SCOPED MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) RUEDA_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RUEDA_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits on an annotated mutex that the caller holds. (std::condition_variable_any would do, but
// wakes a thread into a mutex of its own that the one who notifies still holds: two switches more.)
class Condition {
 public:
  void wait(Mutex& mutex) RUEDA_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace rueda::base
