// SPDX-License-Identifier: Apache-2.0
// The second half of Client: from completion entries to outcomes, and the rows of gathers.
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

constexpr int kSegmentTimeoutMs = 10000;

size_t tailBytesOf(const CompletionEntry& entry) {
  return entry.gatherRanks * sizeof(shm::RowBlock) + entry.textBytes;
}

uint32_t slotsOf(size_t tailBytes) {
  if (tailBytes <= sizeof(CompletionEntry::tail)) return 1;
  const size_t rest = tailBytes - sizeof(CompletionEntry::tail);
  return static_cast<uint32_t>(1 + (rest + sizeof(shm::TailEntry::data) - 1) /
                                       sizeof(shm::TailEntry::data));
}

Status unknownHandle(uint64_t handle) {
  return {Code::kInvalidArgument,
          "handle " + std::to_string(handle) + " is not one of an operation in flight"};
}

}  // namespace

// REQUIRES: mutex_ held.
void Client::drainCompletions() {
  for (;;) {
    const int64_t available = completions_.available();
    if (available == 0) break;
    CompletionEntry entry;
    if (available > 0) completions_.peek(0, &entry);
    const bool sane = available > 0 && entry.gatherRanks <= shm::kMaxRanks &&
                      entry.textBytes <= shm::kMaxTextBytes;
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

// REQUIRES: mutex_ held.
void Client::freeGatherInput(uint64_t id) {
  const auto input = gatherInputs_.find(id);
  if (input == gatherInputs_.end()) return;
  (void)memory_.free(input->second);
  gatherInputs_.erase(input);
}

void Client::takeCompletion(const CompletionEntry& entry, const std::vector<char>& tail) {
  const bool isReleased = entry.type == static_cast<uint8_t>(CompletionType::kReleased);
  if (isReleased || entry.code != 0)
    freeGatherInput(entry.requestId);  // Nobody reads a failed one.
  if (isReleased) return;
  const auto it = flights_.find(entry.requestId);
  if (it == flights_.end()) return;
  Flight& flight = it->second;
  if (flight.isDetour)
    direct_.detourEnded(entry.hasDirectIndex != 0 ? std::optional(entry.directIndex)
                                                  : std::nullopt);
  const size_t rowBytes = entry.gatherRanks * sizeof(shm::RowBlock);
  flight.rows.resize(entry.gatherRanks);
  if (rowBytes > 0) std::memcpy(flight.rows.data(), tail.data(), rowBytes);
  flight.status =
      Status(static_cast<Code>(entry.code), std::string(tail.data() + rowBytes, entry.textBytes));
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
    if (status.isOk() && flight.copyTo != nullptr)
      std::memcpy(flight.copyTo, flight.result, flight.resultBytes);
  }
  if (shm::gathers(kind) && status.isOk()) return finishGather(handle);
  forget(handle);
  return status;
}

Status Client::finishGather(uint64_t id) {
  std::vector<shm::RowBlock> rows;
  uint64_t rowBytes = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Flight& flight = flights_[id];
    if (flight.gathered != nullptr) return Status::ok();
    rows = flight.rows;
    rowBytes = flight.rowBytes;
  }
  const Status collected = collectRows(id, rows, rowBytes);
  Submission release;
  release.type = shm::EntryType::kRelease;
  release.requestId = id;
  const Status released = submitter_.write({release});
  if (!collected.isOk()) forget(id);
  return collected.isOk() ? released : collected;
}

// Lets the daemon copy the rows of a gather. It does so even if a rank has left meanwhile: the
// gather was complete.
Status Client::awaitFetch(Submission* fetch) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    fetch->requestId = nextId_++;
    flights_[fetch->requestId].isNamed = false;
  }
  const Status written = submitter_.write({*fetch});
  const Waited waited = !written.isOk()
                            ? Waited::kFailed
                            : patience_.untilAnswered([&] { return isDone(fetch->requestId); },
                                                      connection_->control()->completionBell);
  Status status = !written.isOk() ? written : connection_->failure();
  if (waited == Waited::kInterrupted) status = {Code::kInterrupted, "interrupted while waiting"};
  if (waited == Waited::kReady) {
    const std::lock_guard<std::mutex> lock(mutex_);
    status = flights_[fetch->requestId].status;
  }
  forget(fetch->requestId);
  return status;
}

// Copies the rows of all ranks from where they lie, or lets the daemon do it where ranks do not map
// each other's memory.
Status Client::collectRows(uint64_t id, const std::vector<shm::RowBlock>& rows, uint64_t rowBytes) {
  auto gathered = std::make_unique<Gathered>();
  for (const shm::RowBlock& row : rows) {
    gathered->firstDims.push_back(row.firstDim);
    gathered->bytes += static_cast<uint64_t>(row.firstDim) * rowBytes;
  }
  std::unique_ptr<char[]> copy;
  char* block = nullptr;
  const bool isIsolated = options_.size > 1 && connection_->policy().directEnabled == 0;
  if (isIsolated && gathered->bytes > 0) {
    RUEDA_ASSIGN_OR_RETURN(block, memory_.allocate(gathered->bytes));
    Submission fetch;
    fetch.type = shm::EntryType::kFetch;
    fetch.extra = id;
    fetch.output = *connection_->segments().locate(block, gathered->bytes);
    Status fetched = awaitFetch(&fetch);
    if (!fetched.isOk()) {
      // Without an outcome the daemon may still be writing there.
      const bool isOver = fetched.code() != Code::kInterrupted && !connection_->isLost();
      if (isOver) (void)memory_.free(block);
      return fetched;
    }
  } else {
    copy.reset(new char[gathered->bytes == 0 ? 1 : gathered->bytes]);
    char* to = copy.get();
    for (const shm::RowBlock& row : rows) {
      const uint64_t bytes = static_cast<uint64_t>(row.firstDim) * rowBytes;
      if (bytes == 0) continue;
      if (connection_->segments().region(row.segment).base == nullptr)
        RUEDA_RETURN_IF_ERROR(connection_->awaitSegment(row.segment, kSegmentTimeoutMs));
      const char* from = connection_->segments().region(row.segment).at(row.offset, bytes);
      if (from == nullptr) return {Code::kInternal, "gathered rows lie outside their segment"};
      std::memcpy(to, from, bytes);
      to += bytes;
    }
  }
  gathered->data = block != nullptr ? block : copy.get();
  const std::lock_guard<std::mutex> lock(mutex_);
  Flight& flight = flights_[id];
  flight.gathered = std::move(gathered);
  flight.gatheredBlock = block;
  flight.gatheredCopy = std::move(copy);
  return Status::ok();
}

const Gathered* Client::gathered(uint64_t handle) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = flights_.find(handle);
  return it == flights_.end() ? nullptr : it->second.gathered.get();
}

Status Client::release(uint64_t handle) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = flights_.find(handle);
    if (it == flights_.end()) return unknownHandle(handle);
    if (it->second.gathered == nullptr)
      return {Code::kInvalidArgument,
              "handle " + std::to_string(handle) + " is no finished gather"};
  }
  forget(handle);
  return Status::ok();
}

}  // namespace rueda::client
