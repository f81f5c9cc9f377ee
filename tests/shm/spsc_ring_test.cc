// SPDX-License-Identifier: Apache-2.0
#include "shm/spsc_ring.h"

#include <catch2/catch.hpp>
#include <limits>

#include "tests/kit/memory_ring.h"

namespace {

using rueda::kit::MemoryRing;
using rueda::shm::kEntryBytes;
using rueda::shm::kRingSlots;

struct Entry {
  uint64_t words[kEntryBytes / 8];
};
static_assert(sizeof(Entry) == kEntryBytes);

Entry entryOf(uint64_t value) {
  Entry entry;
  for (uint64_t& word : entry.words) word = value;
  return entry;
}

void put(MemoryRing* ring, uint64_t value) {
  const Entry entry = entryOf(value);
  ring->producer.stage(&entry);
  ring->producer.publish();
}

// The oldest entry's value; all of its words must agree.
uint64_t take(MemoryRing* ring) {
  Entry entry;
  ring->consumer.peek(0, &entry);
  ring->consumer.consume(1);
  for (const uint64_t word : entry.words) REQUIRE(word == entry.words[0]);
  return entry.words[0];
}

}  // namespace

TEST_CASE("a new ring is empty and has all its slots") {
  MemoryRing ring;
  CHECK(ring.consumer.available() == 0);
  CHECK(ring.producer.space() == kRingSlots);
}

TEST_CASE("an entry arrives whole, byte for byte") {
  MemoryRing ring;
  Entry sent;
  for (uint32_t i = 0; i < kEntryBytes / 8; ++i) sent.words[i] = i * 0x0123456789abcdefull;
  ring.producer.stage(&sent);
  ring.producer.publish();
  Entry got;
  ring.consumer.peek(0, &got);
  CHECK(std::memcmp(&sent, &got, sizeof sent) == 0);
}

TEST_CASE("staged entries are seen when they are published, all at once") {
  MemoryRing ring;
  for (uint64_t i = 0; i < 5; ++i) {
    const Entry entry = entryOf(i);
    ring.producer.stage(&entry);
    CHECK(ring.consumer.available() == 0);
  }
  ring.producer.publish();
  REQUIRE(ring.consumer.available() == 5);
  for (uint32_t i = 0; i < 5; ++i) {
    Entry entry;
    ring.consumer.peek(i, &entry);
    CHECK(entry.words[0] == i);
  }
  ring.consumer.consume(5);
  CHECK(ring.consumer.available() == 0);
}

TEST_CASE("a full ring has no space until something is consumed") {
  MemoryRing ring;
  for (uint64_t i = 0; i < kRingSlots; ++i) put(&ring, i);
  CHECK(ring.producer.space() == 0);
  CHECK(ring.consumer.available() == kRingSlots);
  CHECK(take(&ring) == 0);
  CHECK(ring.producer.space() == 1);
  put(&ring, 77);
  for (uint64_t i = 1; i < kRingSlots; ++i) REQUIRE(take(&ring) == i);
  CHECK(take(&ring) == 77);
}

TEST_CASE("order is kept over many turns round the ring") {
  MemoryRing ring;
  uint64_t sent = 0;
  uint64_t got = 0;
  for (int round = 0; round < 100; ++round) {
    const int count = 1 + round * 37 % static_cast<int>(kRingSlots);
    for (int i = 0; i < count; ++i) put(&ring, sent++);
    for (int i = 0; i < count; ++i) REQUIRE(take(&ring) == got++);
  }
  CHECK(got == sent);
}

TEST_CASE("indices that the other side could not have written are told apart from all others") {
  MemoryRing ring;
  for (uint64_t i = 0; i < 10; ++i) put(&ring, i);
  ring.consumer.consume(4);
  SECTION("a consumer that claims more than was written") {
    ring.head().store(11);
    CHECK(ring.producer.space() == -1);
    ring.head().store(std::numeric_limits<uint32_t>::max());
    CHECK(ring.producer.space() == kRingSlots - 11);  // One before the first: plausible.
    ring.head().store(10);
    CHECK(ring.producer.space() == kRingSlots);
  }
  SECTION("a producer that claims more than fits") {
    ring.tail().store(4 + kRingSlots + 1);
    CHECK(ring.consumer.available() == -1);
    ring.tail().store(4 + kRingSlots);
    CHECK(ring.consumer.available() == kRingSlots);
  }
  SECTION("a producer that goes back behind what was read") {
    ring.tail().store(3);
    CHECK(ring.consumer.available() == -1);
    ring.tail().store(4);
    CHECK(ring.consumer.available() == 0);
  }
}

TEST_CASE("a forged index of one side does not move the other's own") {
  MemoryRing ring;
  put(&ring, 1);
  put(&ring, 2);
  ring.tail().store(12345678);
  CHECK(ring.consumer.available() == -1);
  put(&ring, 3);  // The producer's own count repairs the mirror.
  CHECK(ring.consumer.available() == 3);
  CHECK(take(&ring) == 1);
}
