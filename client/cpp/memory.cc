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
  for (auto& [segment, arena] : arenas_)
    if (const auto offset = arena.allocate(bytes))
      return connection_.segments().region(segment).base + *offset;
  return nullptr;
}

shm::Result<char*> Memory::allocate(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (char* block = tryArenas(bytes)) return block;
  if (bytes > uint64_t{1} << 48)
    return Status(Code::kResourceExhausted, std::to_string(bytes) + " bytes cannot be mapped");
  RUEDA_ASSIGN_OR_RETURN(const uint32_t segment,
                         connection_.addSegment(std::max(bytes, nextSegmentBytes_)));
  nextSegmentBytes_ = std::min(nextSegmentBytes_ * 2, kLargestDefaultSegment);
  arenas_.emplace(segment, shm::Arena(connection_.segments().region(segment).bytes));
  char* block = tryArenas(bytes);
  RUEDA_CHECK(block != nullptr);
  return block;
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
