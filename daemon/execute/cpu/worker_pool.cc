// SPDX-License-Identifier: Apache-2.0
#include "daemon/execute/cpu/worker_pool.h"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <utility>

namespace rueda::execute {

WorkerPool::WorkerPool(size_t threads) : size_(threads) {
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this, i] { loop(i); });
}

void WorkerPool::stop() {
  {
    base::MutexLock lock(mutex_);
    stopping_ = true;
  }
  wakeup_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerPool::submit(Work work) {
  auto running = std::make_shared<Running>();
  running->work = std::move(work);
  const size_t pieces = running->left = running->work.pieces;
  for (size_t i = 0; i < size_; ++i)
    running->shares.push_back({pieces * i / size_, pieces * (i + 1) / size_});
  const bool isSingle = running->work.pieces == 1;
  {
    base::MutexLock lock(mutex_);
    queues_[running->work.job].push_back(std::move(running));
  }
  if (isSingle)
    wakeup_.notify_one();
  else
    wakeup_.notify_all();
}

std::shared_ptr<WorkerPool::Running> WorkerPool::takePiece(size_t worker, size_t* piece) {
  if (queues_.empty()) return nullptr;
  auto queue = queues_.upper_bound(lastJob_);
  if (queue == queues_.end()) queue = queues_.begin();
  lastJob_ = queue->first;
  std::shared_ptr<Running> running = queue->second.front();
  if (Share& own = running->shares[worker]; own.begin < own.end) {
    *piece = own.begin++;
  } else {  // From the end of the largest, whose owner comes there last.
    *piece = --std::max_element(
                   running->shares.begin(), running->shares.end(),
                   [](const Share& a, const Share& b) { return a.end - a.begin < b.end - b.begin; })
                   ->end;
  }
  if (--running->left == 0) {
    queue->second.pop_front();
    if (queue->second.empty()) queues_.erase(queue);
  }
  return running;
}

void WorkerPool::loop(size_t index) {
  pthread_setname_np(pthread_self(), ("reduce-" + std::to_string(index)).c_str());
  for (;;) {
    std::shared_ptr<Running> running;
    size_t piece = 0;
    {
      base::MutexLock lock(mutex_);
      while (!stopping_ && (running = takePiece(index, &piece)) == nullptr) wakeup_.wait(mutex_);
      if (stopping_) return;
    }
    running->work.runPiece(piece);
    // acq_rel: the last worker's `done` sees what all others wrote.
    if (running->finished.fetch_add(1, std::memory_order_acq_rel) + 1 == running->work.pieces)
      running->work.done();
  }
}

}  // namespace rueda::execute
