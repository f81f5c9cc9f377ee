// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tails of ring entries: how long one is, and how it goes on in TailEntry slots behind its
// entry; for both rings, and both of their ends. No state.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "shm/op_times.h"
#include "shm/spsc_ring.h"

namespace rueda::shm {

constexpr auto kTailType = static_cast<uint8_t>(EntryType::kTail);
static_assert(kTailType == static_cast<uint8_t>(CompletionType::kTail));

inline bool isSubmit(const SubmissionEntry& entry) {
  return entry.type == static_cast<uint8_t>(EntryType::kSubmit);
}
inline bool isStamped(const SubmissionEntry& entry) {
  return isSubmit(entry) && (entry.flags & kFlagStamped) != 0;
}
inline bool isRefused(const SubmissionEntry& entry) {
  return isSubmit(entry) && (entry.flags & kFlagRefused) != 0;
}
// How many numbers follow the dimensions.
inline uint64_t numbersOf(const SubmissionEntry& entry) {
  return isSubmit(entry) ? entry.extra : 0;
}
// Of all that precedes the name. REQUIRES: tailBytes(entry) is there.
inline size_t numberBytes(const SubmissionEntry& entry) {
  return (entry.ndim + numbersOf(entry) + (isStamped(entry) ? 1 : 0)) * sizeof(int64_t);
}
// Of the reason, which follows the name.
inline size_t reasonBytes(const SubmissionEntry& entry) {
  return isRefused(entry) ? entry.outSegment : 0;
}

// Of the whole tail; nullopt: a part of it is longer than allowed.
inline std::optional<size_t> tailBytes(const SubmissionEntry& entry) {
  if (entry.ndim > kMaxDims || numbersOf(entry) > kMaxRanks || entry.nameBytes > kMaxNameBytes ||
      reasonBytes(entry) > kMaxReasonBytes)
    return std::nullopt;
  return numberBytes(entry) + entry.nameBytes + reasonBytes(entry);
}
inline std::optional<size_t> tailBytes(const CompletionEntry& entry) {
  if (entry.gatherRanks > kMaxRanks || entry.timedRanks > kMaxRanks ||
      entry.textBytes > kMaxTextBytes)
    return std::nullopt;
  const size_t timeBytes =
      entry.timedRanks == 0 ? 0 : sizeof(OpTimes) + entry.timedRanks * sizeof(RankTime);
  return entry.gatherRanks * sizeof(RowBlock) + entry.textBytes + timeBytes;
}

// Slots of an entry whose tail has that many bytes.
template <typename Entry>
constexpr uint32_t slotsFor(size_t bytes) {
  constexpr size_t kFirst = sizeof(Entry::tail);
  constexpr size_t kNext = sizeof(TailEntry::data);
  return bytes <= kFirst ? 1 : static_cast<uint32_t>(1 + (bytes - kFirst + kNext - 1) / kNext);
}

// Calls put(slot) for each of the slotsFor<Entry>(tail.size()) slots in turn, of kEntryBytes each.
template <typename Entry, typename Put>
void writeSlots(Entry entry, std::string_view tail, const Put& put) {
  const size_t first = std::min(tail.size(), sizeof entry.tail);
  std::copy_n(tail.data(), first, entry.tail);
  put(&entry);
  for (tail.remove_prefix(first); !tail.empty();) {
    TailEntry next{};
    next.type = kTailType;
    const size_t bytes = std::min(tail.size(), sizeof next.data);
    std::copy_n(tail.data(), bytes, next.data);
    put(&next);
    tail.remove_prefix(bytes);
  }
}

// Reads the tail of `entry`, which is a copy of the ring's next one. Returns kTailType, or the type
// of the first slot that is no tail. REQUIRES: slotsFor<Entry>(bytes) <= ring.available().
template <typename Entry>
uint8_t readTail(const RingConsumer& ring, const Entry& entry, size_t bytes, std::string* tail) {
  tail->assign(entry.tail, std::min(bytes, sizeof entry.tail));
  for (uint32_t slot = 1; tail->size() < bytes; ++slot) {
    TailEntry next;
    ring.peek(slot, &next);
    if (next.type != kTailType) return next.type;
    tail->append(next.data, std::min(bytes - tail->size(), sizeof next.data));
  }
  return kTailType;
}

}  // namespace rueda::shm
