// SPDX-License-Identifier: Apache-2.0
#include "shm/arena.h"

#include <algorithm>
#include <iterator>

namespace rueda::shm {

Arena::Arena(uint64_t bytes) : capacity_(bytes / kAlignment * kAlignment) {
  if (capacity_ > 0) gaps_[0] = capacity_;
}

std::optional<uint64_t> Arena::allocate(uint64_t bytes) {
  if (bytes > capacity_) return std::nullopt;
  const uint64_t need = std::max<uint64_t>(1, (bytes + kAlignment - 1) / kAlignment) * kAlignment;
  const auto gap = std::find_if(gaps_.begin(), gaps_.end(),
                                [need](const auto& entry) { return entry.second >= need; });
  if (gap == gaps_.end()) return std::nullopt;
  const auto [offset, size] = *gap;
  gaps_.erase(gap);
  if (size > need) gaps_[offset + need] = size - need;
  blocks_[offset] = need;
  used_ += need;
  return offset;
}

bool Arena::free(uint64_t offset) {
  const auto block = blocks_.find(offset);
  if (block == blocks_.end()) return false;
  uint64_t begin = offset;
  uint64_t size = block->second;
  used_ -= size;
  blocks_.erase(block);
  auto next = gaps_.lower_bound(begin);
  if (next != gaps_.end() && next->first == begin + size) {
    size += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == begin) {
      begin = previous->first;
      size += previous->second;
      gaps_.erase(previous);
    }
  }
  gaps_[begin] = size;
  return true;
}

uint64_t Arena::blockBytes(uint64_t offset) const {
  const auto block = blocks_.find(offset);
  return block == blocks_.end() ? 0 : block->second;
}

}  // namespace rueda::shm
