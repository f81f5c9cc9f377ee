// SPDX-License-Identifier: Apache-2.0
#include "daemon/execute/cpu/adasum.h"

#include <algorithm>
#include <cstring>

#include "shm/float_conversion.h"

namespace rueda::execute {
namespace {

constexpr uint64_t kBlock = 1024;  // Elements at a time: two blocks of float64 stay in cache.
constexpr uint64_t kLanes = 8;     // Sums that do not wait for each other.

// A rank's tensor, or what has been made of several, and where results go.
struct Part {
  const char* value = nullptr;
  char* room = nullptr;
};

// One tensor on its way up the tree. T accumulates.
template <typename T>
class Combination {
 public:
  Combination(const shm::ReduceSpec& spec, uint64_t count)
      : dtype_(spec.dtype), bytes_(shm::dtypeSize(spec.dtype)), count_(count) {}

  // Of the parts [begin, end): aligned blocks of 2^j first.
  Part combine(std::vector<Part>* parts, size_t begin, size_t end) const {
    if (end - begin == 1) return (*parts)[begin];
    size_t half = 1;
    while (half * 2 < end - begin) half *= 2;
    const Part left = combine(parts, begin, begin + half);
    const Part right = combine(parts, begin + half, end);
    pair(left, right);
    return {left.room, left.room};
  }

  // To every output, scaled.
  void spread(const Part& from, double scale, const std::vector<void*>& outputs) const {
    for (uint64_t at = 0; at < count_; at += kBlock) {
      const uint64_t count = std::min(kBlock, count_ - at);
      T values[kBlock];
      shm::widen(dtype_, from.value + at * bytes_, count, values);
      if (scale != 1.0)
        for (uint64_t i = 0; i < count; ++i) values[i] *= static_cast<T>(scale);
      for (void* output : outputs)
        shm::narrow(dtype_, values, count, static_cast<char*>(output) + at * bytes_);
    }
  }

 private:
  struct Products {
    double both = 0;
    double left = 0;
    double right = 0;

    void add(double a, double b) {
      both += a * b;
      left += a * a;
      right += b * b;
    }
    void add(const Products& other) {
      both += other.both;
      left += other.left;
      right += other.right;
    }
  };

  template <typename Body>
  void forBlocks(const Part& left, const Part& right, const Body& body) const {
    for (uint64_t at = 0; at < count_; at += kBlock) {
      const uint64_t count = std::min(kBlock, count_ - at);
      T a[kBlock];
      T b[kBlock];
      shm::widen(dtype_, left.value + at * bytes_, count, a);
      shm::widen(dtype_, right.value + at * bytes_, count, b);
      body(at, count, a, b);
    }
  }

  Products multiply(const Part& left, const Part& right) const {
    Products sums;
    forBlocks(left, right, [&sums](uint64_t, uint64_t count, const T* a, const T* b) {
      Products lanes[kLanes];
      for (uint64_t i = 0; i < count; ++i) lanes[i % kLanes].add(a[i], b[i]);
      for (const Products& lane : lanes) sums.add(lane);
    });
    return sums;
  }

  void pair(const Part& left, const Part& right) const {
    const Products sums = multiply(left, right);
    const auto weight = [&sums](double square) {
      return static_cast<T>(square == 0 ? 1.0 : 1.0 - sums.both / (2 * square));
    };
    const T weightA = weight(sums.left);
    const T weightB = weight(sums.right);
    forBlocks(left, right, [&](uint64_t at, uint64_t count, T* a, const T* b) {
      for (uint64_t i = 0; i < count; ++i) a[i] = weightA * a[i] + weightB * b[i];
      shm::narrow(dtype_, a, count, left.room + at * bytes_);
    });
  }

  const shm::DType dtype_;
  const size_t bytes_;
  const uint64_t count_;
};

template <typename T>
void run(const shm::ReduceSpec& spec, const flow::Slice& slice) {
  std::vector<Part> parts;
  for (const void* input : slice.inputs)
    if (input != nullptr)
      parts.push_back(
          {static_cast<const char*>(input), static_cast<char*>(slice.outputs[parts.size()])});
  const Combination<T> combination(spec, slice.count);
  const Part result = combination.combine(&parts, 0, parts.size());
  combination.spread(result, spec.prescale * spec.postscale, slice.outputs);
}

}  // namespace

void adasum(const shm::ReduceSpec& spec, const flow::Slice& slice) {
  spec.dtype == shm::DType::kFloat64 ? run<double>(spec, slice) : run<float>(spec, slice);
}

}  // namespace rueda::execute
