// SPDX-License-Identifier: Apache-2.0
#pragma once

// Single-producer single-consumer ring over shared 128-byte slots. Each side keeps its own index in
// private memory and only mirrors it; the other side's index is read, checked, and refused if it is
// impossible. One thread (or one lock) per side.

#include <atomic>
#include <cstdint>
#include <cstring>

#include "shm/layout.h"

namespace rueda::shm {

// A slot is copied word by word with relaxed atomics: the peer may write it meanwhile, which must
// not be a data race in this process.
inline void copySlotFrom(void* to, const char* slot) {
  auto* words = reinterpret_cast<const std::atomic<uint64_t>*>(slot);
  uint64_t copy[kEntryBytes / 8];
  for (uint32_t i = 0; i < kEntryBytes / 8; ++i) copy[i] = words[i].load(std::memory_order_relaxed);
  std::memcpy(to, copy, kEntryBytes);
}

inline void copySlotTo(char* slot, const void* from) {
  auto* words = reinterpret_cast<std::atomic<uint64_t>*>(slot);
  uint64_t copy[kEntryBytes / 8];
  std::memcpy(copy, from, kEntryBytes);
  for (uint32_t i = 0; i < kEntryBytes / 8; ++i) words[i].store(copy[i], std::memory_order_relaxed);
}

class RingProducer {
 public:
  RingProducer() = default;
  RingProducer(char* slots, std::atomic<uint32_t>* tail, std::atomic<uint32_t>* head)
      : slots_(slots), tailShared_(tail), headShared_(head) {}

  // Free slots, or -1 if the consumer's index is impossible.
  int64_t space() {
    const uint32_t used = tail_ - headShared_->load(std::memory_order_acquire);
    return used > kRingSlots ? -1 : int64_t{kRingSlots} - used;
  }
  // REQUIRES: space() > entries staged since the last publish.
  void stage(const void* entry) {
    copySlotTo(slots_ + uint64_t{staged_++ & (kRingSlots - 1)} * kEntryBytes, entry);
  }
  // Makes the staged entries visible together. seq_cst, since the caller then reads whether the
  // consumer sleeps: pairs with the consumer's store of "asleep" before its last look at the ring.
  void publish() {
    tail_ = staged_;
    tailShared_->store(tail_, std::memory_order_seq_cst);
  }

 private:
  char* slots_ = nullptr;
  std::atomic<uint32_t>* tailShared_ = nullptr;
  std::atomic<uint32_t>* headShared_ = nullptr;
  uint32_t tail_ = 0;
  uint32_t staged_ = 0;
};

class RingConsumer {
 public:
  RingConsumer() = default;
  RingConsumer(const char* slots, const std::atomic<uint32_t>* tail, std::atomic<uint32_t>* head)
      : slots_(slots), tailShared_(tail), headShared_(head) {}

  // Entries that can be read, or -1 if the producer's index is impossible.
  int64_t available() const {
    // seq_cst: pairs with publish() when this side is about to sleep.
    const uint32_t count = tailShared_->load(std::memory_order_seq_cst) - head_;
    return count > kRingSlots ? -1 : int64_t{count};
  }
  // Copies the entry `ahead` of the next one. REQUIRES: ahead < available().
  void peek(uint32_t ahead, void* entry) const {
    copySlotFrom(entry, slots_ + uint64_t{(head_ + ahead) & (kRingSlots - 1)} * kEntryBytes);
  }
  // Gives `count` slots back. release: the producer must not overwrite what is still being copied.
  void consume(uint32_t count) {
    head_ += count;
    headShared_->store(head_, std::memory_order_release);
  }

 private:
  const char* slots_ = nullptr;
  const std::atomic<uint32_t>* tailShared_ = nullptr;
  std::atomic<uint32_t>* headShared_ = nullptr;
  uint32_t head_ = 0;
};

}  // namespace rueda::shm
