// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/row_collector.h"

#include <cstring>
#include <utility>

#include "client/cpp/operation.h"
#include "shm/copy.h"

namespace rueda::client {

using shm::Code;
using shm::Status;

RowCollector::RowCollector(Connection& connection, Memory& memory, Patience& patience,
                           Submitter& submitter, Flights& flights)
    : connection_(connection),
      memory_(memory),
      patience_(patience),
      submitter_(submitter),
      flights_(flights) {}

// Lets the daemon copy the rows of gather `id`. It does so even if a rank has left meanwhile: the
// gather was complete.
Status RowCollector::fetchRows(uint64_t id, const char* to, uint64_t bytes) {
  Submission fetch;
  fetch.type = shm::EntryType::kFetch;
  fetch.extra = id;
  fetch.output = *connection_.segments().locate(to, bytes);
  Flight copy;
  copy.isNamed = false;
  bool isAmong = false;
  RUEDA_ASSIGN_OR_RETURN(fetch.requestId, flights_.add(std::move(copy), &isAmong));
  Status status = submitter_.write({fetch});
  if (status.isOk()) {
    const Waited waited = patience_.untilAnswered([&] { return flights_.isDone(fetch.requestId); },
                                                  connection_.control()->completionBell);
    status = connection_.failure();
    if (waited == Waited::kInterrupted) status = {Code::kInterrupted, "interrupted while waiting"};
    if (waited == Waited::kReady)
      flights_.with(fetch.requestId, [&status](const Flight& f) { status = f.status; });
  }
  flights_.forget(fetch.requestId);
  return status;
}

// Copies the rows of all ranks from where they lie.
Status RowCollector::copyRows(const std::vector<shm::RowBlock>& rows, uint64_t rowBytes, char* to) {
  for (const shm::RowBlock& row : rows) {
    const uint64_t bytes = static_cast<uint64_t>(row.firstDim) * rowBytes;
    if (bytes == 0) continue;
    if (connection_.segments().region(row.segment).base == nullptr)
      RUEDA_RETURN_IF_ERROR(connection_.awaitSegment(row.segment, kSegmentTimeoutMs));
    const char* from = connection_.segments().region(row.segment).at(row.offset, bytes);
    if (from == nullptr) return {Code::kInternal, "gathered rows lie outside their segment"};
    shm::copyLarge(to, from, bytes);
    to += bytes;
  }
  return Status::ok();
}

// Brings the rows to the caller's memory, or to a block: memory of the arena comes again, while
// that of malloc costs a page fault for each 4 KiB, several times what the copy takes. Where ranks
// do not map each other's memory the daemon copies, and only into memory of the arena.
Status RowCollector::collect(uint64_t id) {
  Flight flight;  // What this one needs of it.
  flights_.with(id, [&flight](const Flight& found) {
    flight.kind = found.kind;
    flight.name = found.name;
    flight.output = found.output;
    flight.outputRoom = found.outputRoom;
    flight.rowBytes = found.rowBytes;
    flight.rows = found.rows;
  });
  auto gathered = std::make_unique<Gathered>();
  for (const shm::RowBlock& row : flight.rows) {
    gathered->firstDims.push_back(row.firstDim);
    gathered->bytes += static_cast<uint64_t>(row.firstDim) * flight.rowBytes;
  }
  const uint64_t bytes = gathered->bytes;
  if (flight.output != nullptr && bytes > flight.outputRoom)
    return noRoom(flight.kind, flight.name, bytes, flight.outputRoom);
  const bool isPlaced =
      flight.output != nullptr && (!connection_.isIsolated() || memory_.owns(flight.output, bytes));
  char* block = nullptr;
  if (bytes > 0 && !isPlaced) {
    RUEDA_ASSIGN_OR_RETURN(block, memory_.allocate(bytes));
  }
  char* const to = isPlaced ? static_cast<char*>(flight.output) : block;
  Status copied;
  if (bytes > 0)
    copied = connection_.isIsolated() ? fetchRows(id, to, bytes)
                                      : copyRows(flight.rows, flight.rowBytes, to);
  if (copied.isOk() && block != nullptr && flight.output != nullptr)
    std::memcpy(flight.output, block, bytes);
  // Without an outcome the daemon may still be writing there.
  const bool isOver = copied.code() != Code::kInterrupted && !connection_.isLost();
  if (block != nullptr && (copied.isOk() ? flight.output != nullptr : isOver))
    (void)memory_.free(std::exchange(block, nullptr));
  RUEDA_RETURN_IF_ERROR(copied);
  gathered->data = flight.output != nullptr ? static_cast<char*>(flight.output) : block;
  flights_.with(id, [&gathered, block](Flight& found) {
    found.gathered = std::move(gathered);
    found.gatheredBlock = block;
  });
  return Status::ok();
}

}  // namespace rueda::client
