// SPDX-License-Identifier: Apache-2.0
// What the machine allows at best: one pass over memory by pinned threads, and one sleeping round
// trip. A gang of one process; nothing is rewritten between calls, so small sizes stay in cache.
// usage: bench_memlimit FOLDER
// kinds: sumK (K arrays of BYTES each into all K, one thread a core up to K), futex (4 B there and
// back)
#include <immintrin.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tests/bench/bench_gang.h"
#include "tests/bench/sum_kernel.h"

namespace rueda::bench {
namespace {

// Arrays of one pass, split evenly over pinned threads. The calling thread is thread 0; the others
// live as long as the object and spin for the next pass.
class OnePass {
 public:
  OnePass(int arrays, size_t count, int threads)
      : arrays_(arrays), count_(count), threads_(threads) {
    // A page between arrays keeps their cache sets apart.
    const size_t stride = count * sizeof(float) + 4096;
    char* base = reinterpret_cast<char*>(memory_.ensure(stride * size_t(arrays)));
    for (int k = 0; k < arrays; ++k) {
      pointers_[k] = reinterpret_cast<float*>(base + stride * size_t(k));
    }
    pinToCore(0);
    for (int t = 1; t < threads; ++t) helpers_.emplace_back([this, t] { help(t); });
  }
  OnePass(const OnePass&) = delete;
  OnePass& operator=(const OnePass&) = delete;
  ~OnePass() {
    stop_.store(true, std::memory_order_relaxed);
    pass_.fetch_add(1, std::memory_order_release);
    for (std::thread& helper : helpers_) helper.join();
  }

  void run() {
    const int pass = pass_.fetch_add(1, std::memory_order_release) + 1;
    sumPart(0);
    while (done_.load(std::memory_order_acquire) < pass * (threads_ - 1)) _mm_pause();
  }

 private:
  void help(int thread) {
    pinToCore(thread);
    for (int pass = 1;; ++pass) {
      // Pairs with the release in run(); the result pairs with the acquire there.
      while (pass_.load(std::memory_order_acquire) < pass) _mm_pause();
      if (stop_.load(std::memory_order_relaxed)) return;
      sumPart(thread);
      done_.fetch_add(1, std::memory_order_release);
    }
  }

  void sumPart(int thread) {
    const size_t part = count_ / size_t(threads_);
    float* arrays[kMost];
    for (int k = 0; k < arrays_; ++k) arrays[k] = pointers_[k] + part * size_t(thread);
    sumInPlace(arrays_, arrays, part);
  }

  static constexpr int kMost = 8;
  const int arrays_;
  const size_t count_;
  const int threads_;
  PrivateBuffer memory_;
  float* pointers_[kMost] = {};
  alignas(64) std::atomic<int> pass_{0};
  alignas(64) std::atomic<int> done_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> helpers_;
};

// Two threads, on two cores where there are two, that wake each other and sleep.
class PingPong {
 public:
  PingPong() : partner_([this] { answer(); }) { pinToCore(0); }
  PingPong(const PingPong&) = delete;
  PingPong& operator=(const PingPong&) = delete;
  ~PingPong() {
    post(&there_, kStop);
    partner_.join();
  }

  void run() {
    const uint32_t next = ++number_;
    post(&there_, next);
    await(&back_, next);
  }

 private:
  static constexpr uint32_t kStop = ~0u;

  static void post(std::atomic<uint32_t>* word, uint32_t value) {
    word->store(value, std::memory_order_seq_cst);
    syscall(SYS_futex, word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }

  // Sleeps until the word changes to `wanted` or to kStop; returns which.
  static uint32_t await(std::atomic<uint32_t>* word, uint32_t wanted) {
    for (;;) {
      const uint32_t seen = word->load(std::memory_order_seq_cst);
      if (seen == wanted || seen == kStop) return seen;
      syscall(SYS_futex, word, FUTEX_WAIT, seen, nullptr, nullptr, 0);
    }
  }

  void answer() {
    pinToCore(1);
    for (uint32_t next = 1; await(&there_, next) != kStop; ++next) post(&back_, next);
  }

  alignas(64) std::atomic<uint32_t> there_{0};
  alignas(64) std::atomic<uint32_t> back_{0};
  uint32_t number_ = 0;
  std::thread partner_;
};

Work prepare(const Command& command) {
  Work work;
  work.touch = false;
  if (command.kind == "futex") {
    auto pair = std::make_shared<PingPong>();
    work.call = [pair] { pair->run(); };
  } else if (command.kind.rfind("sum", 0) == 0) {
    const int arrays = std::atoi(command.kind.c_str() + 3);
    if (arrays != 2 && arrays != 4 && arrays != 8) return work;
    const int threads = std::min(arrays, onlineCores());
    auto pass = std::make_shared<OnePass>(arrays, command.bytes / sizeof(float), threads);
    work.call = [pass] { pass->run(); };
  }
  return work;
}

}  // namespace
}  // namespace rueda::bench

int main(int argc, char** argv) {
  if (argc < 2) return 1;
  rueda::bench::Gang gang(argv[1], 0, 1);
  rueda::bench::serve(gang, rueda::bench::prepare);
  return 0;
}
