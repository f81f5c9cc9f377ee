// SPDX-License-Identifier: Apache-2.0
#include "shm/entry_tail.h"

#include <catch2/catch.hpp>

#include "tests/kit/memory_ring.h"

using namespace rueda::shm;  // NOLINT(google-build-using-namespace): a test file

namespace {

SubmissionEntry submission(uint8_t ndim, uint64_t extra, uint16_t nameBytes) {
  SubmissionEntry entry{};
  entry.type = static_cast<uint8_t>(EntryType::kSubmit);
  entry.ndim = ndim;
  entry.extra = extra;
  entry.nameBytes = nameBytes;
  return entry;
}

CompletionEntry completion(uint32_t gatherRanks, uint32_t textBytes, uint8_t timedRanks) {
  CompletionEntry entry{};
  entry.gatherRanks = gatherRanks;
  entry.textBytes = textBytes;
  entry.timedRanks = timedRanks;
  return entry;
}

std::string textOf(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

// Writes an entry with its tail into a ring, and returns the tail as its other end reads it.
template <typename Entry>
std::string throughRing(const std::string& tail, uint32_t* slots) {
  rueda::kit::MemoryRing ring;
  Entry entry{};
  entry.requestId = 77;
  writeSlots(entry, tail, [&ring](const void* slot) { ring.producer.stage(slot); });
  ring.producer.publish();
  *slots = static_cast<uint32_t>(ring.consumer.available());
  Entry copy;
  ring.consumer.peek(0, &copy);
  std::string read = "of before";
  if (copy.requestId != 77 || readTail(ring.consumer, copy, tail.size(), &read) != kTailType)
    return "broken";
  return read;
}

}  // namespace

TEST_CASE("a tail takes one slot more for each 120 bytes that the entry has no room for") {
  CHECK(slotsFor<SubmissionEntry>(0) == 1);
  CHECK(slotsFor<SubmissionEntry>(40) == 1);
  CHECK(slotsFor<SubmissionEntry>(41) == 2);
  CHECK(slotsFor<SubmissionEntry>(160) == 2);
  CHECK(slotsFor<SubmissionEntry>(161) == 3);
  CHECK(slotsFor<CompletionEntry>(88) == 1);
  CHECK(slotsFor<CompletionEntry>(89) == 2);
  CHECK(slotsFor<CompletionEntry>(208) == 2);
  CHECK(slotsFor<CompletionEntry>(209) == 3);
}

TEST_CASE("what is written is read again, in as many slots as are reckoned") {
  const size_t bytes = GENERATE(0, 1, 39, 40, 41, 87, 88, 89, 160, 161, 208, 209, 5000);
  const std::string tail = textOf(bytes);
  uint32_t slots = 0;
  CHECK(throughRing<SubmissionEntry>(tail, &slots) == tail);
  CHECK(slots == slotsFor<SubmissionEntry>(bytes));
  CHECK(throughRing<CompletionEntry>(tail, &slots) == tail);
  CHECK(slots == slotsFor<CompletionEntry>(bytes));
}

TEST_CASE("a slot that is no tail ends the reading") {
  rueda::kit::MemoryRing ring;
  SubmissionEntry entry = submission(0, 0, 200);
  int written = 0;
  writeSlots(entry, textOf(200), [&](const void* slot) {
    TailEntry copy;
    std::memcpy(&copy, slot, sizeof copy);
    if (++written == 3) copy.type = static_cast<uint8_t>(EntryType::kSubmit);
    ring.producer.stage(&copy);
  });
  ring.producer.publish();
  REQUIRE(written == 3);
  ring.consumer.peek(0, &entry);
  std::string tail;
  CHECK(readTail(ring.consumer, entry, 160, &tail) == kTailType);
  CHECK(readTail(ring.consumer, entry, 161, &tail) == static_cast<uint8_t>(EntryType::kSubmit));
}

TEST_CASE("the tail of a submission has dimensions, numbers, a stamp and the name") {
  SubmissionEntry entry = submission(2, 3, 10);
  CHECK(tailBytes(entry) == 5 * 8 + 10);
  entry.flags = kFlagStamped;
  CHECK(numberBytes(entry) == 6 * 8);
  CHECK(tailBytes(entry) == 6 * 8 + 10);
  SECTION("only a submission has numbers and a stamp") {
    entry.type = static_cast<uint8_t>(EntryType::kFetch);
    CHECK(tailBytes(entry) == 2 * 8 + 10);
  }
}

TEST_CASE("the reason of a refused submission follows the name, only where one can be refused") {
  SubmissionEntry entry = submission(1, 0, 4);
  entry.outSegment = kMaxReasonBytes;
  CHECK(tailBytes(entry) == 8 + 4);
  entry.flags = kFlagRefused;
  CHECK(tailBytes(entry) == 8 + 4 + 200);
  ++entry.outSegment;
  CHECK_FALSE(tailBytes(entry));
  entry.type = static_cast<uint8_t>(EntryType::kFetch);
  CHECK(tailBytes(entry) == 8 + 4);
}

TEST_CASE("a submission with more of something than allowed has no tail") {
  CHECK(tailBytes(submission(kMaxDims, kMaxRanks, kMaxNameBytes)) == (64 + 64) * 8 + 1024);
  CHECK_FALSE(tailBytes(submission(kMaxDims + 1, 0, 0)));
  CHECK_FALSE(tailBytes(submission(0, kMaxRanks + 1, 0)));
  CHECK_FALSE(tailBytes(submission(0, uint64_t{1} << 61, 0)));
  CHECK_FALSE(tailBytes(submission(0, 0, kMaxNameBytes + 1)));
}

TEST_CASE("the tail of a completion has rows, text and times") {
  CHECK(tailBytes(completion(0, 0, 0)) == 0);
  CHECK(tailBytes(completion(2, 5, 0)) == 2 * 24 + 5);
  CHECK(tailBytes(completion(2, 5, 3)) == 2 * 24 + 5 + 40 + 3 * 16);
  CHECK(tailBytes(completion(kMaxRanks, kMaxTextBytes, kMaxRanks)) ==
        64 * 24 + 8192 + 40 + 64 * 16);
  CHECK_FALSE(tailBytes(completion(kMaxRanks + 1, 0, 0)));
  CHECK_FALSE(tailBytes(completion(0, kMaxTextBytes + 1, 0)));
  CHECK_FALSE(tailBytes(completion(0, 0, kMaxRanks + 1)));
}

TEST_CASE("the largest entries fit into their rings") {
  SubmissionEntry entry = submission(kMaxDims, kMaxRanks, kMaxNameBytes);
  entry.flags = kFlagStamped | kFlagRefused;
  entry.outSegment = kMaxReasonBytes;
  CHECK(slotsFor<SubmissionEntry>(*tailBytes(entry)) * 8 < kRingSlots);
  CHECK(slotsFor<CompletionEntry>(*tailBytes(completion(kMaxRanks, kMaxTextBytes, kMaxRanks))) <
        kRingSlots);
}
