// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/memory.h"

#include <algorithm>

namespace rueda::client {

using shm::Code;
using shm::Status;

namespace {

constexpr uint64_t kLargestDefaultSegment = 64 << 20;

}  // namespace

char* Memory::tryArenas(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [segment, arena] : arenas_)
    if (const auto offset = arena.allocate(bytes))
      return connection_.segments().region(segment).base + *offset;
  return nullptr;
}

shm::Result<char*> Memory::allocate(uint64_t bytes) {
  if (char* block = tryArenas(bytes)) return block;
  if (bytes > uint64_t{1} << 48)
    return Status(Code::kResourceExhausted, std::to_string(bytes) + " bytes cannot be mapped");
  const std::lock_guard<std::mutex> growing(growMutex_);
  if (char* block = tryArenas(bytes)) return block;  // Another thread has grown meanwhile.
  RUEDA_ASSIGN_OR_RETURN(const uint32_t segment,
                         connection_.addSegment(std::max(bytes, nextSegmentBytes_)));
  nextSegmentBytes_ = std::min(nextSegmentBytes_ * 2, kLargestDefaultSegment);
  shm::Arena arena(connection_.segments().region(segment).bytes);
  const auto offset = arena.allocate(bytes);
  RUEDA_CHECK(offset.has_value());
  const std::lock_guard<std::mutex> lock(mutex_);
  arenas_.emplace(segment, std::move(arena));
  return connection_.segments().region(segment).base + *offset;
}

Status Memory::free(void* pointer) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto place = connection_.segments().locate(pointer, 1);
  const auto arena = place ? arenas_.find(place->segment) : arenas_.end();
  if (arena == arenas_.end() || !arena->second.free(place->offset))
    return {Code::kInvalidArgument, "pointer is not the start of memory from rueda_alloc"};
  return Status::ok();
}

}  // namespace rueda::client
