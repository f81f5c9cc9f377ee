// SPDX-License-Identifier: Apache-2.0
#pragma once

// A ring in private memory with both of its ends, and entries as a client writes them: for tests of
// what reads or writes rings. One thread, unless a test says otherwise.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "shm/spsc_ring.h"

namespace rueda::kit {

class MemoryRing {
 public:
  MemoryRing()
      : shared_(std::make_unique<Shared>()),
        producer(shared_->slots, &shared_->tail, &shared_->head),
        consumer(shared_->slots, &shared_->tail, &shared_->head) {}

  // What the other side mirrors, for tests that forge it.
  std::atomic<uint32_t>& tail() { return shared_->tail; }
  std::atomic<uint32_t>& head() { return shared_->head; }

 private:
  struct Shared {
    alignas(128) char slots[shm::kRingSlots * shm::kEntryBytes] = {};
    std::atomic<uint32_t> tail{0};
    std::atomic<uint32_t> head{0};
  };
  std::unique_ptr<Shared> shared_;

 public:
  shm::RingProducer producer;
  shm::RingConsumer consumer;
};

// The slots of one submission: `entry` with `shape` and `name` as its tail, continued as needed.
// nameBytes and ndim are set from what is given.
inline std::vector<shm::TailEntry> submissionSlots(shm::SubmissionEntry entry,
                                                   const std::vector<int64_t>& shape,
                                                   const std::string& name) {
  std::string tail(reinterpret_cast<const char*>(shape.data()), shape.size() * sizeof(int64_t));
  tail += name;
  entry.ndim = static_cast<uint8_t>(shape.size());
  entry.nameBytes = static_cast<uint16_t>(name.size());
  size_t at = std::min(tail.size(), sizeof entry.tail);
  std::copy_n(tail.begin(), at, entry.tail);
  std::vector<shm::TailEntry> slots(1);
  std::memcpy(&slots[0], &entry, sizeof entry);
  while (at < tail.size()) {
    shm::TailEntry next{};
    next.type = static_cast<uint8_t>(shm::EntryType::kTail);
    const size_t bytes = std::min(tail.size() - at, sizeof next.data);
    std::copy_n(tail.begin() + static_cast<ptrdiff_t>(at), bytes, next.data);
    at += bytes;
    slots.push_back(next);
  }
  return slots;
}

// Writes slots and publishes them together.
inline void publish(shm::RingProducer* producer, const std::vector<shm::TailEntry>& slots) {
  for (const shm::TailEntry& slot : slots) producer->stage(&slot);
  producer->publish();
}

}  // namespace rueda::kit
