// SPDX-License-Identifier: Apache-2.0
// The second part of Client: from completion entries to outcomes.
#include <cstring>
#include <utility>

#include "client/cpp/client.h"

namespace rueda::client {

using shm::Code;
using shm::CompletionEntry;
using shm::CompletionType;
using shm::OpKind;
using shm::Result;
using shm::Status;
using std::chrono::milliseconds;

namespace {

size_t tailBytesOf(const CompletionEntry& entry) {
  const size_t timeBytes =
      entry.timedRanks == 0 ? 0 : sizeof(shm::OpTimes) + entry.timedRanks * sizeof(shm::RankTime);
  return entry.gatherRanks * sizeof(shm::RowBlock) + entry.textBytes + timeBytes;
}

// `from`: where an entry's times begin.
void takeTimes(const char* from, size_t ranks, TimedOperation* timed) {
  std::memcpy(&timed->times, from, sizeof timed->times);
  timed->arrivals.resize(ranks);
  std::memcpy(timed->arrivals.data(), from + sizeof timed->times, ranks * sizeof(shm::RankTime));
}

uint32_t slotsOf(size_t tailBytes) {
  if (tailBytes <= sizeof(CompletionEntry::tail)) return 1;
  const size_t rest = tailBytes - sizeof(CompletionEntry::tail);
  return static_cast<uint32_t>(1 + (rest + sizeof(shm::TailEntry::data) - 1) /
                                       sizeof(shm::TailEntry::data));
}

}  // namespace

Status Client::unknownHandle(uint64_t handle) {
  return {Code::kInvalidArgument,
          "handle " + std::to_string(handle) + " is not one of an operation in flight"};
}

// REQUIRES: mutex_ held.
void Client::drainCompletions() {
  for (;;) {
    const int64_t available = completions_.available();
    if (available == 0) break;
    CompletionEntry entry;
    if (available > 0) completions_.peek(0, &entry);
    const bool sane = available > 0 && entry.gatherRanks <= shm::kMaxRanks &&
                      entry.timedRanks <= shm::kMaxRanks && entry.textBytes <= shm::kMaxTextBytes;
    const uint32_t slots = sane ? slotsOf(tailBytesOf(entry)) : 0;
    if (!sane || slots > available)
      return connection_->fail({Code::kProtocolError, "the daemon's completion ring is broken"});
    std::vector<char> tail(entry.tail, entry.tail + sizeof entry.tail);
    for (uint32_t i = 1; i < slots; ++i) {
      shm::TailEntry next;
      completions_.peek(i, &next);
      tail.insert(tail.end(), next.data, next.data + sizeof next.data);
    }
    completions_.consume(slots);
    takeCompletion(entry, tail);
  }
  // The daemon has more than fits: tell it that there is room. Pairs with Delivery's second look.
  std::atomic<uint32_t>& blocked = connection_->control()->completionBlocked;
  if (blocked.load(std::memory_order_seq_cst) != 0) submitter_.nudge();
}

void Client::takeCompletion(const CompletionEntry& entry, const std::vector<char>& tail) {
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
  if (rowBytes > 0) std::memcpy(flight.rows.data(), tail.data(), rowBytes);
  flight.status =
      Status(static_cast<Code>(entry.code), std::string(tail.data() + rowBytes, entry.textBytes));
  if (flight.timed != nullptr && entry.timedRanks > 0)
    takeTimes(tail.data() + rowBytes + entry.textBytes, entry.timedRanks, flight.timed.get());
  flight.value = entry.value;
  flight.done = true;
  if (flight.isNamed) names_.erase(keyOf(flight.name, flight.set));
  nameCount_.store(names_.size(), std::memory_order_relaxed);
}

bool Client::isDone(uint64_t id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  drainCompletions();
  const auto it = flights_.find(id);
  return it == flights_.end() || it->second.done;
}

Result<bool> Client::poll(uint64_t handle) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    drainCompletions();
    const auto it = flights_.find(handle);
    if (it == flights_.end()) return unknownHandle(handle);
    if (it->second.done) return true;
  }
  submitter_.settle();
  connection_->pump();
  return connection_->hasFailed();
}

Status Client::wait(uint64_t handle, milliseconds timeout) {
  return await(handle, timeout, nullptr);
}

Status Client::await(uint64_t handle, milliseconds timeout, int64_t* value) {
  if (isDone(handle)) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (flights_.count(handle) == 0) return unknownHandle(handle);
  } else {
    submitter_.hurry();
  }
  const auto note = [this, handle] {
    Submission entry;
    std::string name;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto it = flights_.find(handle);
      if (it == flights_.end()) return;
      name = it->second.name;
      entry.op.processSet = it->second.set;
    }
    entry.type = shm::EntryType::kWaitRequest;
    entry.requestId = handle;
    entry.op.name = name;
    (void)submitter_.write({entry});
  };
  const Waited waited = patience_.untilCompleted([&] { return isDone(handle); },
                                                 connection_->control()->completionBell,
                                                 [this] { submitter_.settle(); }, note, timeout);
  if (waited == Waited::kTimedOut || waited == Waited::kInterrupted) {
    Submission end;
    end.type = shm::EntryType::kWaitEnd;
    end.requestId = handle;
    (void)submitter_.write({end});
    if (waited == Waited::kInterrupted) return {Code::kInterrupted, "interrupted while waiting"};
    return {Code::kDeadlineExceeded,
            "no outcome within " + std::to_string(timeout.count()) + " ms"};
  }
  if (waited == Waited::kFailed) {
    forget(handle);
    return connection_->failure();
  }
  OpKind kind = OpKind::kBarrier;
  Status status;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = flights_.find(handle);
    if (it == flights_.end()) return unknownHandle(handle);  // Another thread waited for it too.
    Flight& flight = it->second;
    kind = flight.kind;
    status = flight.status;
    if (value != nullptr) *value = flight.value;
    if (status.isOk() && flight.copyTo != nullptr) copyOut(&flight);
  }
  if (shm::gathers(kind) && status.isOk()) return finishGather(handle);
  forget(handle);
  return status;
}

}  // namespace rueda::client
