// SPDX-License-Identifier: Apache-2.0
#include "daemon/execute/cpu/adasum.h"

#include <algorithm>
#include <utility>

#include "shm/float_conversion.h"

namespace rueda::execute {
namespace {

constexpr uint64_t kPiece = 64 << 10;  // Elements: about 0.1 ms of one core.
constexpr uint64_t kBlock = 1024;      // Elements at a time: two blocks of float64 stay in cache.
constexpr uint64_t kLanes = 8;         // Sums that do not wait for each other.

}  // namespace

Adasum::Adasum(std::shared_ptr<const flow::FusedOp> op) : op_(std::move(op)) {
  for (size_t s = 0; s < op_->slices.size(); ++s) {
    const flow::Slice& slice = op_->slices[s];
    std::vector<Part>& parts = leaves_.emplace_back();
    for (const void* input : slice.inputs)
      if (input != nullptr)
        parts.push_back(
            {static_cast<const char*>(input), static_cast<char*>(slice.outputs[parts.size()])});
    pairs_ = std::max(pairs_, parts.size() / 2);
    while (size_t{1} << levels_ < parts.size()) ++levels_;
    const size_t first = pieces_.size();
    for (uint64_t at = 0; at < slice.count; at += kPiece)
      pieces_.push_back({s, at, std::min(kPiece, slice.count - at), first, 0});
    for (size_t piece = first; piece < pieces_.size(); ++piece) pieces_[piece].end = pieces_.size();
  }
  products_.resize(pieces_.size() * pairs_);
  totals_.resize(leaves_.size() * pairs_);
}

// Of a level with 2^level leaves each: a leaf that has had no partner is still where it was.
Adasum::Part Adasum::partOf(size_t slice, size_t level, size_t index) const {
  const std::vector<Part>& leaves = leaves_[slice];
  const size_t leaf = index << level;
  const bool isCombined = level > 0 && leaf + 1 < leaves.size();
  return isCombined ? Part{leaves[leaf].room, leaves[leaf].room} : leaves[leaf];
}

void Adasum::runPiece(size_t phase, size_t piece) {
  op_->reduce.dtype == shm::DType::kFloat64 ? run<double>(phase, piece) : run<float>(phase, piece);
}

template <typename T>
void Adasum::run(size_t phase, size_t piece) {
  const Range& range = pieces_[piece];
  if (phase + 1 == phases()) return spread<T>(range);
  const size_t level = phase / 3;
  const size_t leaves = leaves_[range.slice].size();
  for (size_t pair = 0; (2 * pair + 1) << level < leaves; ++pair) {
    const Part left = partOf(range.slice, level, 2 * pair);
    const Part right = partOf(range.slice, level, 2 * pair + 1);
    Products& total = totals_[range.slice * pairs_ + pair];
    if (phase % 3 == 0) {
      multiply<T>(range, left, right, &products_[piece * pairs_ + pair]);
    } else if (phase % 3 == 2) {
      weigh<T>(range, left, right, total);
    } else if (piece == range.first) {  // One piece of the slice, for all.
      total = {};
      for (size_t other = range.first; other < range.end; ++other)
        total.add(products_[other * pairs_ + pair]);
    }
  }
}

template <typename T>
void Adasum::multiply(const Range& range, const Part& left, const Part& right,
                      Products* products) const {
  const size_t bytes = shm::dtypeSize(op_->reduce.dtype);
  Products lanes[kLanes];
  for (uint64_t at = range.begin; at < range.begin + range.count; at += kBlock) {
    const uint64_t count = std::min(kBlock, range.begin + range.count - at);
    T a[kBlock];
    T b[kBlock];
    shm::widen(op_->reduce.dtype, left.value + at * bytes, count, a);
    shm::widen(op_->reduce.dtype, right.value + at * bytes, count, b);
    for (uint64_t i = 0; i < count; ++i) {
      Products& lane = lanes[i % kLanes];
      lane.both += static_cast<double>(a[i]) * b[i];
      lane.left += static_cast<double>(a[i]) * a[i];
      lane.right += static_cast<double>(b[i]) * b[i];
    }
  }
  *products = {};
  for (const Products& lane : lanes) products->add(lane);
}

template <typename T>
void Adasum::weigh(const Range& range, const Part& left, const Part& right,
                   const Products& sums) const {
  const size_t bytes = shm::dtypeSize(op_->reduce.dtype);
  const auto weight = [&sums](double square) {
    return static_cast<T>(square == 0 ? 1.0 : 1.0 - sums.both / (2 * square));
  };
  const T weightA = weight(sums.left);
  const T weightB = weight(sums.right);
  for (uint64_t at = range.begin; at < range.begin + range.count; at += kBlock) {
    const uint64_t count = std::min(kBlock, range.begin + range.count - at);
    T a[kBlock];
    T b[kBlock];
    shm::widen(op_->reduce.dtype, left.value + at * bytes, count, a);
    shm::widen(op_->reduce.dtype, right.value + at * bytes, count, b);
    for (uint64_t i = 0; i < count; ++i) a[i] = weightA * a[i] + weightB * b[i];
    shm::narrow(op_->reduce.dtype, a, count, left.room + at * bytes);
  }
}

template <typename T>
void Adasum::spread(const Range& range) const {
  const size_t bytes = shm::dtypeSize(op_->reduce.dtype);
  const Part result = partOf(range.slice, levels_, 0);
  const auto scale = static_cast<T>(op_->reduce.prescale * op_->reduce.postscale);
  for (uint64_t at = range.begin; at < range.begin + range.count; at += kBlock) {
    const uint64_t count = std::min(kBlock, range.begin + range.count - at);
    T values[kBlock];
    shm::widen(op_->reduce.dtype, result.value + at * bytes, count, values);
    if (scale != T{1})
      for (uint64_t i = 0; i < count; ++i) values[i] *= scale;
    for (void* output : op_->slices[range.slice].outputs)
      shm::narrow(op_->reduce.dtype, values, count, static_cast<char*>(output) + at * bytes);
  }
}

}  // namespace rueda::execute
