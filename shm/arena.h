// SPDX-License-Identifier: Apache-2.0
#pragma once

// A block allocator that hands out offsets of one segment. Its bookkeeping lives in the owner's
// private memory, so that no peer can break it. Not thread-safe: the owner locks.

#include <cstdint>
#include <map>
#include <optional>

namespace rueda::shm {

class Arena {
 public:
  // Every block starts at a multiple of this: a cache line, and what DLPack consumers expect.
  static constexpr uint64_t kAlignment = 64;

  explicit Arena(uint64_t bytes);

  // Offset of a block of at least `bytes` (0 counts as 1), first fit; nullopt when no gap is large
  // enough.
  std::optional<uint64_t> allocate(uint64_t bytes);
  // False if `offset` is not the start of an allocated block.
  bool free(uint64_t offset);
  // Size of the block that starts at `offset`, or 0.
  uint64_t blockBytes(uint64_t offset) const;

  uint64_t capacity() const { return capacity_; }
  uint64_t used() const { return used_; }

 private:
  uint64_t capacity_;
  uint64_t used_ = 0;
  std::map<uint64_t, uint64_t> gaps_;    // offset → bytes, never adjacent
  std::map<uint64_t, uint64_t> blocks_;  // offset → bytes
};

}  // namespace rueda::shm
