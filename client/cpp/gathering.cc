// SPDX-License-Identifier: Apache-2.0
// The third part of Client: the rows of gathers that went through the ring.
#include <algorithm>
#include <cstring>
#include <utility>

#include "client/cpp/client.h"
#include "shm/copy.h"

namespace rueda::client {

using shm::Code;
using shm::Status;

// REQUIRES: mutex_ held.
void Client::freeGatherInput(uint64_t id) {
  const auto input = gatherInputs_.find(id);
  if (input == gatherInputs_.end()) return;
  (void)memory_.free(input->second);
  gatherInputs_.erase(input);
}

Status Client::finishGather(uint64_t id) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (flights_[id].gathered != nullptr) return Status::ok();
  }
  const auto begin = std::chrono::steady_clock::now();
  const Status collected = collectRows(id);
  noteCollected(id, shm::nanosOf(begin), collected);
  Submission release;
  release.type = shm::EntryType::kRelease;
  release.requestId = id;
  const Status released = submitter_.write({release});
  if (!collected.isOk()) forget(id);
  return collected.isOk() ? released : collected;
}

// Lets the daemon copy the rows of gather `id`. It does so even if a rank has left meanwhile: the
// gather was complete.
Status Client::fetchRows(uint64_t id, const char* to, uint64_t bytes) {
  Submission fetch;
  fetch.type = shm::EntryType::kFetch;
  fetch.extra = id;
  fetch.output = *connection_->segments().locate(to, bytes);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    fetch.requestId = nextId_++;
    flights_[fetch.requestId].isNamed = false;
  }
  const Status written = submitter_.write({fetch});
  const Waited waited = !written.isOk()
                            ? Waited::kFailed
                            : patience_.untilAnswered([&] { return isDone(fetch.requestId); },
                                                      connection_->control()->completionBell);
  Status status = !written.isOk() ? written : connection_->failure();
  if (waited == Waited::kInterrupted) status = {Code::kInterrupted, "interrupted while waiting"};
  if (waited == Waited::kReady) {
    const std::lock_guard<std::mutex> lock(mutex_);
    status = flights_[fetch.requestId].status;
  }
  forget(fetch.requestId);
  return status;
}

// Copies the rows of all ranks from where they lie.
Status Client::copyRows(const std::vector<shm::RowBlock>& rows, uint64_t rowBytes, char* to) {
  for (const shm::RowBlock& row : rows) {
    const uint64_t bytes = static_cast<uint64_t>(row.firstDim) * rowBytes;
    if (bytes == 0) continue;
    if (connection_->segments().region(row.segment).base == nullptr)
      RUEDA_RETURN_IF_ERROR(connection_->awaitSegment(row.segment, kSegmentTimeoutMs));
    const char* from = connection_->segments().region(row.segment).at(row.offset, bytes);
    if (from == nullptr) return {Code::kInternal, "gathered rows lie outside their segment"};
    shm::copyLarge(to, from, bytes);
    to += bytes;
  }
  return Status::ok();
}

// Brings the rows to the caller's memory, or to a block: memory of the arena comes again, while
// that of malloc costs a page fault for each 4 KiB, several times what the copy takes. Where ranks
// do not map each other's memory the daemon copies, and only into memory of the arena.
Status Client::collectRows(uint64_t id) {
  Flight flight;  // What this one needs of it.
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const Flight& found = flights_[id];
    flight.kind = found.kind;
    flight.name = found.name;
    flight.output = found.output;
    flight.outputRoom = found.outputRoom;
    flight.rowBytes = found.rowBytes;
    flight.rows = found.rows;
  }
  auto gathered = std::make_unique<Gathered>();
  for (const shm::RowBlock& row : flight.rows) {
    gathered->firstDims.push_back(row.firstDim);
    gathered->bytes += static_cast<uint64_t>(row.firstDim) * flight.rowBytes;
  }
  const uint64_t bytes = gathered->bytes;
  if (flight.output != nullptr && bytes > flight.outputRoom)
    return noRoom(flight.kind, flight.name, bytes, flight.outputRoom);
  const bool isIsolated = options_.size > 1 && connection_->policy().directEnabled == 0;
  const bool isPlaced =
      flight.output != nullptr && (!isIsolated || memory_.owns(flight.output, bytes));
  char* block = nullptr;
  if (bytes > 0 && !isPlaced) {
    RUEDA_ASSIGN_OR_RETURN(block, memory_.allocate(bytes));
  }
  char* const to = isPlaced ? static_cast<char*>(flight.output) : block;
  Status copied;
  if (bytes > 0)
    copied = isIsolated ? fetchRows(id, to, bytes) : copyRows(flight.rows, flight.rowBytes, to);
  if (copied.isOk() && block != nullptr && flight.output != nullptr)
    std::memcpy(flight.output, block, bytes);
  // Without an outcome the daemon may still be writing there.
  const bool isOver = copied.code() != Code::kInterrupted && !connection_->isLost();
  if (block != nullptr && (copied.isOk() ? flight.output != nullptr : isOver))
    (void)memory_.free(std::exchange(block, nullptr));
  RUEDA_RETURN_IF_ERROR(copied);
  gathered->data = flight.output != nullptr ? static_cast<char*>(flight.output) : block;
  const std::lock_guard<std::mutex> lock(mutex_);
  flights_[id].gathered = std::move(gathered);
  flights_[id].gatheredBlock = block;
  return Status::ok();
}

// Hands the rows of a blocking gather to its caller.
void Client::giveRows(const Operation& op, uint64_t id) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    Flight& flight = flights_[id];
    const auto& firstDims = flight.gathered->firstDims;
    if (op.received != nullptr) std::copy(firstDims.begin(), firstDims.end(), op.received);
    if (op.output == nullptr) *op.result = std::exchange(flight.gatheredBlock, nullptr);
  }
  forget(id);
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
