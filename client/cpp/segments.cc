// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/segments.h"

#include <utility>

namespace rueda::client {

void Segments::addPeers(uint32_t id, shm::Mapping mapping) {
  add(std::make_unique<Entry>(Entry{id, std::move(mapping), {}}));
}

void Segments::addOwn(uint32_t id, shm::Mapping mapping, shm::Fd memfd) {
  add(std::make_unique<Entry>(Entry{id, std::move(mapping), std::move(memfd)}));
}

void Segments::add(std::unique_ptr<Entry> entry) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Entry* const added = entry.get();
  if (added->id > shm::kMaxSegments || byId_[added->id].load(std::memory_order_relaxed) != nullptr)
    return;
  entries_.push_back(std::move(entry));
  // release: pairs with the acquire of readers, who then see the entry whole.
  byId_[added->id].store(added, std::memory_order_release);
  if (!added->memfd.valid()) return;
  const uint32_t count = ownCount_.load(std::memory_order_relaxed);
  own_[count].store(added, std::memory_order_relaxed);
  ownCount_.store(count + 1, std::memory_order_release);
}

void Segments::becomePrivate() const {
  for (uint32_t i = 0; i < ownCount_.load(std::memory_order_acquire); ++i) {
    const Entry* const entry = own_[i].load(std::memory_order_relaxed);
    (void)entry->mapping.becomePrivate(entry->memfd.get());
  }
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
