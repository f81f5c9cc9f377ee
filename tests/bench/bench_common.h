// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every benchmark program measures with: the clock, pinning, statistics, private memory and
// the gradient set of ResNet-50. Used by one thread of each rank; holds no state of its own.

#include <sched.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace rueda::bench {

inline uint64_t nowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

inline int onlineCores() { return int(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN))); }

// Binds the calling thread to core `rank` modulo the number of cores.
inline void pinToCore(int rank) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(size_t(rank % onlineCores()), &set);
  sched_setaffinity(0, sizeof set, &set);
}

struct Summary {
  double p50Us = 0, p99Us = 0, meanUs = 0;
  size_t count = 0;
};

inline Summary summarise(std::vector<double> us) {
  Summary summary;
  if (us.empty()) return summary;
  std::sort(us.begin(), us.end());
  const auto at = [&](double share) {
    return us[std::min(us.size() - 1, size_t(share * double(us.size())))];
  };
  double total = 0;
  for (double value : us) total += value;
  summary.p50Us = at(0.50);
  summary.p99Us = at(0.99);
  summary.meanUs = total / double(us.size());
  summary.count = us.size();
  return summary;
}

// Part of a tensor buffer, in floats.
struct Slice {
  size_t offset = 0;
  size_t count = 0;
};

// The 161 gradients of ResNet-50 in forward order (25 557 032 floats), each at a multiple of 64
// bytes.
inline std::vector<Slice> resnet50Slices() {
  std::vector<Slice> slices;
  size_t offset = 0;
  const auto add = [&](size_t count) {
    slices.push_back({offset, count});
    offset += (count + 15) & ~size_t(15);
  };
  // A convolution's weights, then scale and shift of the batch normalisation behind it.
  const auto addConvolution = [&](size_t out, size_t in, size_t width) {
    add(out * in * width * width);
    add(out);
    add(out);
  };
  addConvolution(64, 3, 7);
  const size_t blocksOfStage[] = {3, 4, 6, 3};
  size_t in = 64;
  for (size_t stage = 0; stage < 4; ++stage) {
    const size_t width = size_t(64) << stage;
    for (size_t block = 0; block < blocksOfStage[stage]; ++block) {
      addConvolution(width, in, 1);
      addConvolution(width, width, 3);
      addConvolution(4 * width, width, 1);
      if (block == 0) addConvolution(4 * width, in, 1);
      in = 4 * width;
    }
  }
  add(2048 * 1000);
  add(1000);
  return slices;
}

inline size_t totalCount(const std::vector<Slice>& slices) {
  size_t total = 0;
  for (const Slice& slice : slices) total += slice.count;
  return total;
}

// Floats that a buffer needs to hold all slices.
inline size_t spanOf(const std::vector<Slice>& slices) {
  return slices.empty() ? 0 : slices.back().offset + slices.back().count;
}

// Memory of this process alone that grows on demand; every page is touched when it is made.
class PrivateBuffer {
 public:
  PrivateBuffer() = default;
  PrivateBuffer(const PrivateBuffer&) = delete;
  PrivateBuffer& operator=(const PrivateBuffer&) = delete;
  ~PrivateBuffer() { release(); }

  // At least `bytes` of memory, page aligned; null when the system has none. Invalidates what an
  // earlier call returned.
  float* ensure(size_t bytes) {
    if (bytes <= bytes_) return static_cast<float*>(memory_);
    release();
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    std::memset(memory, 0, bytes);
    memory_ = memory;
    bytes_ = bytes;
    return static_cast<float*>(memory_);
  }

 private:
  void release() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
    memory_ = nullptr;
    bytes_ = 0;
  }

  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace rueda::bench
