// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/segments.h"

#include <utility>

namespace rueda::client {

void Segments::add(uint32_t id, bool isOwn, shm::Mapping mapping) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (id > shm::kMaxSegments || byId_[id].load(std::memory_order_relaxed) != nullptr) return;
  entries_.push_back(std::make_unique<Entry>(Entry{id, std::move(mapping)}));
  // release: pairs with the acquire of readers, who then see the entry whole.
  byId_[id].store(entries_.back().get(), std::memory_order_release);
  if (!isOwn) return;
  const uint32_t count = ownCount_.load(std::memory_order_relaxed);
  own_[count].store(entries_.back().get(), std::memory_order_relaxed);
  ownCount_.store(count + 1, std::memory_order_release);
}

shm::Region Segments::region(uint32_t id) const {
  if (id > shm::kMaxSegments) return {};
  const Entry* entry = byId_[id].load(std::memory_order_acquire);
  return entry == nullptr ? shm::Region{}
                          : shm::Region{entry->mapping.data(), entry->mapping.bytes()};
}

std::optional<Place> Segments::locate(const void* pointer, uint64_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const uint32_t count = ownCount_.load(std::memory_order_acquire);
  for (uint32_t i = count; i > 0; --i) {
    const Entry* entry = own_[i - 1].load(std::memory_order_relaxed);
    const auto base = reinterpret_cast<uintptr_t>(entry->mapping.data());
    if (address >= base && shm::inBounds(address - base, bytes, entry->mapping.bytes()))
      return Place{entry->id, address - base};
  }
  return std::nullopt;
}

}  // namespace rueda::client
