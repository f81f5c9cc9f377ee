// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/flights.h"

#include <cstring>
#include <utility>

#include "client/cpp/direct.h"
#include "client/cpp/operation.h"

namespace rueda::client {

using shm::Code;
using shm::CompletionEntry;
using shm::CompletionType;
using shm::Result;
using shm::Status;

namespace {

// `from`: where an entry's times begin.
void takeTimes(const char* from, size_t ranks, TimedOperation* timed) {
  std::memcpy(&timed->times, from, sizeof timed->times);
  timed->arrivals.resize(ranks);
  std::memcpy(timed->arrivals.data(), from + sizeof timed->times, ranks * sizeof(shm::RankTime));
}

}  // namespace

Flights::Flights(Connection& connection, Memory& memory, Submitter& submitter, FlightTimer& timer)
    : connection_(connection),
      memory_(memory),
      submitter_(submitter),
      timer_(timer),
      completions_(reinterpret_cast<char*>(connection.control()) + shm::kCompletionOffset,
                   &connection.control()->completeTail, &connection.control()->completeHead) {}

Flights::~Flights() {
  for (auto& [id, flight] : flights_) timer_.record(&flight);
}

Result<uint64_t> Flights::add(Flight flight, bool* isAmong) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (flight.isNamed && !names_.insert(keyOf(flight.name, flight.set)).second) {
    if (flight.block != nullptr) (void)memory_.free(flight.block);
    return inFlight(flight.kind, flight.name);
  }
  nameCount_.store(names_.size(), std::memory_order_relaxed);
  const uint64_t id = nextId_++;
  if (shm::gathers(flight.kind) && flight.block != nullptr)
    gatherInputs_[id] = std::exchange(flight.block, nullptr);
  flights_[id] = std::move(flight);
  *isAmong = flights_.size() > 1;
  return id;
}

uint64_t Flights::newNumber() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return nextId_++;
}

uint32_t Flights::newGroup() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return nextGroup_++;
}

bool Flights::hasName(std::string_view name, uint32_t set) {
  if (nameCount_.load(std::memory_order_relaxed) == 0) return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  drain();
  return names_.count(keyOf(name, set)) > 0;
}

void Flights::forget(uint64_t id, bool neverSubmitted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (neverSubmitted) freeGatherInput(id);
  const auto it = flights_.find(id);
  if (it == flights_.end()) return;
  if (!it->second.done && it->second.isNamed) names_.erase(keyOf(it->second.name, it->second.set));
  nameCount_.store(names_.size(), std::memory_order_relaxed);
  if (!neverSubmitted) timer_.record(&it->second);
  for (char* block : {it->second.block, it->second.gatheredBlock})
    if (block != nullptr) (void)memory_.free(block);
  flights_.erase(it);
}

bool Flights::hasRoom() {
  const std::lock_guard<std::mutex> lock(mutex_);
  drain();
  return names_.size() < shm::kMaxInFlight - 1;
}

// REQUIRES: mutex_ held.
void Flights::freeGatherInput(uint64_t id) {
  const auto input = gatherInputs_.find(id);
  if (input == gatherInputs_.end()) return;
  (void)memory_.free(input->second);
  gatherInputs_.erase(input);
}

// REQUIRES: mutex_ held.
void Flights::drain() {
  while (const int64_t available = completions_.available()) {
    CompletionEntry entry;
    if (available > 0) completions_.peek(0, &entry);
    const auto bytes = available > 0 ? shm::tailBytes(entry) : std::nullopt;
    const uint32_t slots = bytes ? shm::slotsFor<CompletionEntry>(*bytes) : 0;
    if (!bytes || slots > available ||
        shm::readTail(completions_, entry, *bytes, &tail_) != shm::kTailType)
      return connection_.fail({Code::kProtocolError, "the daemon's completion ring is broken"});
    completions_.consume(slots);
    take(entry);
  }
  // The daemon has more than fits: tell it that there is room. Pairs with Delivery's second look.
  std::atomic<uint32_t>& blocked = connection_.control()->completionBlocked;
  if (blocked.load(std::memory_order_seq_cst) != 0) submitter_.nudge();
}

// Its tail is in tail_.
void Flights::take(const CompletionEntry& entry) {
  const bool isReleased = entry.type == static_cast<uint8_t>(CompletionType::kReleased);
  if (isReleased || entry.code != 0)
    freeGatherInput(entry.requestId);  // Nobody reads a failed one.
  if (isReleased) return;
  const auto it = flights_.find(entry.requestId);
  if (it == flights_.end()) return;
  Flight& flight = it->second;
  if (flight.detour != nullptr)
    flight.detour->detourEnded(entry.hasDirectIndex != 0 ? std::optional(entry.directIndex)
                                                         : std::nullopt);
  const size_t rowBytes = entry.gatherRanks * sizeof(shm::RowBlock);
  flight.rows.resize(entry.gatherRanks);
  if (rowBytes > 0) std::memcpy(flight.rows.data(), tail_.data(), rowBytes);
  flight.status =
      Status(static_cast<Code>(entry.code), std::string(tail_.data() + rowBytes, entry.textBytes));
  if (flight.timed != nullptr && entry.timedRanks > 0)
    takeTimes(tail_.data() + rowBytes + entry.textBytes, entry.timedRanks, flight.timed.get());
  flight.value = entry.value;
  flight.done = true;
  if (flight.isNamed) names_.erase(keyOf(flight.name, flight.set));
  nameCount_.store(names_.size(), std::memory_order_relaxed);
}

bool Flights::isDone(uint64_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  drain();
  const auto it = flights_.find(id);
  return it == flights_.end() || it->second.done;
}

}  // namespace rueda::client
