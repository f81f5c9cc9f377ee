// SPDX-License-Identifier: Apache-2.0
#include "daemon/complete/delivery.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>

using namespace rueda;  // NOLINT(google-build-using-namespace): a test file
using complete::Delivery;
using flow::Outcome;
using shm::Code;
using shm::Status;

namespace {

// A client's control segment in private memory, and the client's end of its completion ring.
struct ClientSide {
  ClientSide()
      : memory(new char[shm::kControlBytes + 128]()),
        base(
            reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.get()) + 127) / 128 * 128)),
        control(reinterpret_cast<shm::ControlHeader*>(base)),
        ring(base + shm::kCompletionOffset, &control->completeTail, &control->completeHead) {}
  char* slots() const { return base + shm::kCompletionOffset; }

  // The next outcome with its tail.
  shm::CompletionEntry take(std::string* tail) {
    shm::CompletionEntry entry;
    ring.peek(0, &entry);
    const size_t timeBytes = entry.timedRanks * sizeof(shm::RankTime) +
                             (entry.timedRanks == 0 ? 0 : sizeof(shm::OpTimes));
    const size_t bytes = entry.gatherRanks * sizeof(shm::RowBlock) + entry.textBytes + timeBytes;
    tail->assign(entry.tail, std::min(bytes, sizeof entry.tail));
    uint32_t slot = 1;
    for (; tail->size() < bytes; ++slot) {
      shm::TailEntry next;
      ring.peek(slot, &next);
      REQUIRE(next.type == static_cast<uint8_t>(shm::CompletionType::kTail));
      tail->append(next.data, std::min(bytes - tail->size(), sizeof next.data));
    }
    ring.consume(slot);
    return entry;
  }

  std::unique_ptr<char[]> memory;
  char* base;
  shm::ControlHeader* control;
  shm::RingConsumer ring;
};

Outcome outcome(uint64_t requestId, Status status = Status::ok()) {
  Outcome o;
  o.session = 1;
  o.requestId = requestId;
  o.status = std::move(status);
  return o;
}

}  // namespace

TEST_CASE("an outcome arrives with code, text, rows and index") {
  ClientSide client;
  Delivery delivery;
  delivery.addSession(1, client.slots(), client.control);
  const size_t textBytes = GENERATE(0, 1, 24, 25, 96, 97, 500, 8192);
  Outcome sent = outcome(
      42, textBytes > 0 ? Status(Code::kMismatch, std::string(textBytes, 'm')) : Status::ok());
  sent.directIndex = 9;
  for (uint32_t r = 0; r < 3; ++r) sent.rows.push_back({r, 0, 64 * r, int64_t{r} + 1});
  delivery.deliver(sent);
  REQUIRE(delivery.flush().empty());
  std::string tail;
  const auto entry = client.take(&tail);
  REQUIRE(entry.requestId == 42);
  REQUIRE(entry.code == static_cast<int32_t>(sent.status.code()));
  REQUIRE(entry.hasDirectIndex == 1);
  REQUIRE(entry.directIndex == 9);
  REQUIRE(entry.gatherRanks == 3);
  REQUIRE(std::memcmp(tail.data(), sent.rows.data(), 3 * sizeof(shm::RowBlock)) == 0);
  REQUIRE(tail.substr(3 * sizeof(shm::RowBlock)) == std::string(textBytes, 'm'));
}

TEST_CASE("times come behind the text") {
  ClientSide client;
  Delivery delivery;
  delivery.addSession(1, client.slots(), client.control);
  const int ranks = GENERATE(1, 2, 64);
  Outcome sent = outcome(42, Status(Code::kMismatch, "text"));
  sent.rows.resize(2);
  sent.times = {1, 2, 3, 4, 5};
  for (int rank = 0; rank < ranks; ++rank) sent.rankTimes.push_back({rank, 0, 100 + rank});
  delivery.deliver(sent);
  REQUIRE(delivery.flush().empty());
  std::string tail;
  const auto entry = client.take(&tail);
  REQUIRE(entry.timedRanks == ranks);
  const char* times = tail.data() + 2 * sizeof(shm::RowBlock) + 4;
  CHECK(std::memcmp(times, &sent.times, sizeof sent.times) == 0);
  CHECK(std::memcmp(times + sizeof sent.times, sent.rankTimes.data(),
                    sent.rankTimes.size() * sizeof(shm::RankTime)) == 0);
}

TEST_CASE("a text longer than the limit is cut, not refused") {
  ClientSide client;
  Delivery delivery;
  delivery.addSession(1, client.slots(), client.control);
  delivery.deliver(outcome(1, Status(Code::kMismatch, std::string(100000, 'x'))));
  REQUIRE(delivery.flush().empty());
  std::string tail;
  REQUIRE(client.take(&tail).textBytes == shm::kMaxTextBytes);
}

TEST_CASE("a full ring keeps what does not fit, in order, until the client has read") {
  ClientSide client;
  Delivery delivery;
  delivery.addSession(1, client.slots(), client.control);
  constexpr uint64_t kMany = shm::kRingSlots + 500;
  for (uint64_t id = 1; id <= kMany; ++id) delivery.deliver(outcome(id));
  REQUIRE(delivery.flush().empty());
  REQUIRE(delivery.hasBacklog());
  REQUIRE(client.control->completionBlocked.load() == 1);
  uint64_t expected = 1;
  std::string tail;
  while (expected <= kMany) {
    const int64_t available = client.ring.available();
    REQUIRE(available > 0);
    for (int64_t i = 0; i < available; ++i) REQUIRE(client.take(&tail).requestId == expected++);
    REQUIRE(delivery.flush().empty());
  }
  REQUIRE_FALSE(delivery.hasBacklog());
  REQUIRE(client.control->completionBlocked.load() == 0);
}

TEST_CASE("a client with an impossible index is named once, others get theirs") {
  ClientSide good;
  ClientSide bad;
  Delivery delivery;
  delivery.addSession(1, good.slots(), good.control);
  delivery.addSession(2, bad.slots(), bad.control);
  bad.control->completeHead.store(12345);
  Outcome forBad = outcome(7);
  forBad.session = 2;
  delivery.deliver(forBad);
  delivery.deliver(outcome(8));
  const auto broken = delivery.flush();
  REQUIRE(broken.size() == 1);
  REQUIRE(broken[0].session == 2);
  REQUIRE(broken[0].reason.code() == Code::kProtocolError);
  std::string tail;
  REQUIRE(good.take(&tail).requestId == 8);
  REQUIRE(delivery.flush().empty());
}

TEST_CASE("outcomes for a session that is gone are dropped") {
  ClientSide client;
  Delivery delivery;
  delivery.deliver(outcome(1));
  delivery.addSession(1, client.slots(), client.control);
  delivery.deliver(outcome(2));
  delivery.forget(1);
  REQUIRE(delivery.flush().empty());
  REQUIRE(client.ring.available() == 0);
}

TEST_CASE("a client that never reads is given up when its backlog is full") {
  ClientSide client;
  Delivery delivery;
  delivery.addSession(1, client.slots(), client.control);
  size_t given = 0;
  std::vector<Delivery::Broken> broken;
  for (; broken.empty() && given < 10 * shm::kMaxInFlight; ++given) {
    delivery.deliver(outcome(given));
    if (given % 1000 == 0) broken = delivery.flush();
  }
  REQUIRE(broken.size() == 1);
  REQUIRE(broken[0].reason.code() == Code::kResourceExhausted);
}
