// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operations of this rank that are in the ring, by number: it gives them numbers, keeps names
// and memory until they end, and takes their outcomes from the completion ring. Any thread.

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "client/cpp/flight_timer.h"
#include "client/cpp/memory.h"
#include "client/cpp/submitter.h"
#include "shm/entry_tail.h"

namespace rueda::client {

class Flights {
 public:
  // All references outlive this.
  Flights(Connection& connection, Memory& memory, Submitter& submitter, FlightTimer& timer);
  ~Flights();  // Records what has not ended.

  // The number of a new flight, which is never 0; *isAmong: whether there are others.
  // kAlreadyExists: one of its name is on its way in its set; then its block is given back.
  shm::Result<uint64_t> add(Flight flight, bool* isAmong);
  // A number for something else that the daemon is told.
  uint64_t newNumber();
  uint32_t newGroup();

  // Whether one of this name is on its way. Cheap while nothing is.
  bool hasName(std::string_view name, uint32_t set);
  // Whether one more may be submitted.
  bool hasRoom();
  bool has(uint64_t id) {
    return with(id, [](const Flight&) {});
  }
  // True also of a flight that there is not.
  bool isDone(uint64_t id);
  // Calls use(flight) with the lock held. False if there is no such flight.
  template <typename Use>
  bool with(uint64_t id, const Use& use) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = flights_.find(id);
    if (it != flights_.end()) use(it->second);
    return it != flights_.end();
  }
  // What was never submitted gives back what peers would have read, too.
  void forget(uint64_t id, bool neverSubmitted = false);

 private:
  // A name is one of its process set.
  static std::string keyOf(std::string_view name, uint32_t set) {
    return set == 0 ? std::string(name) : std::string(name) + '\0' + std::to_string(set);
  }
  void drain();
  void take(const shm::CompletionEntry& entry);
  void freeGatherInput(uint64_t id);

  // Own locks.
  Connection& connection_;
  Memory& memory_;
  Submitter& submitter_;
  FlightTimer& timer_;
  std::mutex mutex_;  // Guards the rest.
  shm::RingConsumer completions_;
  std::string tail_;  // Kept for its memory.
  std::unordered_map<uint64_t, Flight> flights_;
  std::unordered_set<std::string> names_;             // By keyOf; without an outcome yet.
  std::unordered_map<uint64_t, char*> gatherInputs_;  // Blocks that peers may still read.
  uint64_t nextId_ = 1;
  uint32_t nextGroup_ = 1;
  std::atomic<size_t> nameCount_{0};  // Of names_; read without the lock.
};

}  // namespace rueda::client
