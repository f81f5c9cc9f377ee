// SPDX-License-Identifier: Apache-2.0
#pragma once

// Destroys what takes long to destroy, on a thread of its own: descriptors from strangers, whose
// close() can block for as long as they like (a TCP socket with SO_LINGER and a peer that does not
// read), and large memory (0.3 s for 4 GB).

#include <memory>

namespace rueda::base {

class Disposer {
 public:
  // `atOnce`: starts the thread here; else the first thing does.
  explicit Disposer(bool atOnce = false);
  Disposer(const Disposer&) = delete;
  Disposer& operator=(const Disposer&) = delete;
  // Does not wait: what is being destroyed stays behind, until the process ends at the latest.
  ~Disposer();

  // Destroys `thing` on the thread. Any thread; does not block.
  void take(std::shared_ptr<void> thing) const { queue_->take(std::move(thing)); }
  // A pointer that gives `thing` to the thread when the last copy of it goes, also after this.
  template <typename T>
  std::shared_ptr<T> guard(std::unique_ptr<T> thing) const {
    return std::shared_ptr<T>(thing.release(),
                              [queue = queue_](T* last) { queue->take(std::shared_ptr<T>(last)); });
  }

 private:
  class Queue {
   public:
    virtual ~Queue() = default;
    virtual void take(std::shared_ptr<void> thing) = 0;
    virtual bool start() = 0;
    virtual void end() = 0;
  };
  class ThreadQueue;

  const std::shared_ptr<Queue> queue_;  // Shared with the thread.
};

}  // namespace rueda::base
