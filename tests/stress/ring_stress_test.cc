// SPDX-License-Identifier: Apache-2.0

// A ring between threads: an honest producer loses nothing, and a hostile one, which writes
// anything anywhere at any time, makes the other side neither crash nor race.

#include <catch2/catch.hpp>
#include <random>
#include <thread>

#include "tests/fuzz/borders.h"
#include "tests/kit/memory_ring.h"
#include "tests/stress/rounds.h"

namespace {

using rueda::kit::submissionSlots;
using rueda::shm::kEntryBytes;
using rueda::shm::kRingSlots;
using rueda::shm::RingConsumer;
using rueda::shm::RingProducer;
using rueda::shm::SubmissionEntry;
using rueda::shm::TailEntry;
using Random = std::mt19937_64;

// The words and slots of one ring, as they lie in a control segment.
struct Shared {
  alignas(128) char slots[size_t{kRingSlots} * kEntryBytes] = {};
  alignas(64) std::atomic<uint32_t> tail{0};
  alignas(64) std::atomic<uint32_t> head{0};
};

// Of 1 to 12 slots; everything in it follows from the id.
std::vector<TailEntry> submissionOf(uint64_t id) {
  SubmissionEntry entry{};
  entry.type = static_cast<uint8_t>(rueda::shm::EntryType::kWaitRequest);
  entry.requestId = id;
  const std::string name(id * 7919 % rueda::shm::kMaxNameBytes, static_cast<char>('a' + id % 26));
  return submissionSlots(entry, std::vector<int64_t>(id % 13, 1), name);
}

bool isSubmissionOf(uint64_t id, const rueda::submit::Item& item) {
  const auto* note = std::get_if<rueda::submit::WaitNote>(&item);
  return note != nullptr && note->requestId == id &&
         note->name ==
             std::string(id * 7919 % rueda::shm::kMaxNameBytes, static_cast<char>('a' + id % 26));
}

// Publishes submissions 0 to count - 1 in batches of any size.
void produce(Shared* shared, uint64_t count, uint64_t seed) {
  Random random(seed);
  RingProducer producer(shared->slots, &shared->tail, &shared->head);
  uint64_t id = 0;
  while (id < count) {
    int64_t space = producer.space();
    const uint64_t batchEnd = std::min(count, id + 1 + random() % 200);
    for (; id < batchEnd; ++id) {
      const auto slots = submissionOf(id);
      if (static_cast<int64_t>(slots.size()) > space) break;
      space -= static_cast<int64_t>(slots.size());
      for (const TailEntry& slot : slots) producer.stage(&slot);
    }
    producer.publish();
    if (id < batchEnd) std::this_thread::yield();
  }
}

// "" after `count` submissions in order.
std::string consumeAll(Shared* shared, uint64_t count) {
  RingConsumer consumer(shared->slots, &shared->tail, &shared->head);
  for (uint64_t id = 0; id < count;) {
    int64_t available = consumer.available();
    if (available < 0) return "an impossible index";
    if (available == 0) std::this_thread::yield();
    while (available > 0) {
      uint32_t slots = 0;
      const auto item =
          rueda::submit::parseSubmission(consumer, available, rueda::fuzz::origin(), &slots);
      if (!item.isOk()) return item.status().toString();
      if (!isSubmissionOf(id, item.value())) return "not submission " + std::to_string(id);
      consumer.consume(slots);
      available -= slots;
      ++id;
    }
  }
  return "";
}

void storeWord(char* slot, size_t word, uint64_t value) {
  reinterpret_cast<std::atomic<uint64_t>*>(slot)[word].store(value, std::memory_order_relaxed);
}

// A peer process without scruples: its stores are atomic, since between processes there are no
// data races in the language's sense; all else about them is wrong. Real submissions are among
// them, so that readers get deep.
void scribble(Shared* shared, const std::atomic<bool>* stop, uint64_t seed) {
  Random random(seed);
  while (!stop->load(std::memory_order_relaxed)) {
    const auto slots = submissionOf(random() % 1000);
    uint64_t at = shared->head.load(std::memory_order_relaxed) + random() % 4;
    for (const TailEntry& slot : slots)
      rueda::shm::copySlotTo(shared->slots + at++ % kRingSlots * kEntryBytes, &slot);
    char* victim = shared->slots + (at - 1 - random() % slots.size()) % kRingSlots * kEntryBytes;
    if (random() % 2 == 0) storeWord(victim, random() % (kEntryBytes / 8), random());
    const uint64_t jump = random() % 16;
    auto& index = random() % 4 == 0 ? shared->head : shared->tail;
    index.store(jump == 0 ? static_cast<uint32_t>(random()) : static_cast<uint32_t>(at),
                std::memory_order_relaxed);
  }
}

struct Hostility {
  int accepted = 0;
  int refused = 0;
  std::string wrong;
};

// Reads like the engine; whatever it refuses ends a session, and the next begins where the shared
// index says. Ends after `sessions`, of which one at least got somewhere.
Hostility readHostile(Shared* shared, int sessions) {
  Hostility seen;
  while ((seen.refused < sessions || seen.accepted == 0) && seen.wrong.empty()) {
    RingConsumer consumer(shared->slots, &shared->tail, &shared->head);
    consumer.consume(shared->head.load(std::memory_order_relaxed));
    for (bool isOpen = true; isOpen && seen.wrong.empty();) {
      const int64_t available = consumer.available();
      if (available > int64_t{kRingSlots}) seen.wrong = "more slots than a ring has";
      if (available == 0) std::this_thread::yield();
      uint32_t slots = 0;
      isOpen = available >= 0;
      if (available <= 0) continue;
      const auto item =
          rueda::submit::parseSubmission(consumer, available, rueda::fuzz::origin(), &slots);
      isOpen = item.isOk();
      if (!isOpen) continue;
      seen.wrong = rueda::fuzz::checkItem(item.value());
      if (slots < 1 || slots > available) seen.wrong = "took slots that were not there";
      ++seen.accepted;
      consumer.consume(slots);
    }
    ++seen.refused;
  }
  return seen;
}

}  // namespace

TEST_CASE("a ring between two threads keeps every submission, whole and in order") {
  const auto count = static_cast<uint64_t>(rueda::stress::rounds(50000));
  const auto shared = std::make_unique<Shared>();
  std::thread producer(produce, shared.get(), count, Catch::rngSeed());
  const std::string wrong = consumeAll(shared.get(), count);
  producer.join();
  CHECK(wrong == "");
}

TEST_CASE("a writer that scribbles over slots and indices gets only refusals") {
  const auto shared = std::make_unique<Shared>();
  std::atomic<bool> stop{false};
  std::thread first(scribble, shared.get(), &stop, Catch::rngSeed());
  std::thread second(scribble, shared.get(), &stop, Catch::rngSeed() + 1);
  const Hostility seen = readHostile(shared.get(), rueda::stress::rounds(50000));
  stop.store(true);
  first.join();
  second.join();
  CHECK(seen.wrong == "");
}

TEST_CASE("a producer whose consumer lies about its index stays inside the ring") {
  const auto shared = std::make_unique<Shared>();
  std::atomic<bool> stop{false};
  std::thread liar(scribble, shared.get(), &stop, Catch::rngSeed());
  RingProducer producer(shared->slots, &shared->tail, &shared->head);
  const TailEntry slot{};
  bool isBounded = true;
  int impossible = 0;
  const int rounds = rueda::stress::rounds(500000);
  for (int i = 0; (i < rounds || impossible == 0) && isBounded; ++i) {
    const int64_t space = producer.space();
    isBounded = isBounded && space >= -1 && space <= int64_t{kRingSlots};
    impossible += space < 0 ? 1 : 0;
    if (space < 1) continue;
    producer.stage(&slot);
    producer.publish();
  }
  stop.store(true);
  liar.join();
  CHECK(isBounded);
}
