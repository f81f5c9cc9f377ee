// SPDX-License-Identifier: Apache-2.0
#include "daemon/submit/intake.h"

#include <cmath>
#include <cstring>

#include "shm/region.h"

namespace rueda::submit {
namespace {

using flow::TensorMemory;
using flow::TensorSpec;
using shm::Code;
using shm::EntryType;
using shm::Result;
using shm::Status;
using shm::SubmissionEntry;
using shm::TailEntry;

constexpr size_t kFirstTail = sizeof(SubmissionEntry::tail);
constexpr size_t kNextTail = sizeof(TailEntry::data);

Status broken(const std::string& what) { return {Code::kProtocolError, what}; }

uint32_t slotsFor(size_t tailBytes) {
  if (tailBytes <= kFirstTail) return 1;
  return static_cast<uint32_t>(1 + (tailBytes - kFirstTail + kNextTail - 1) / kNextTail);
}

// Gathers the tail of `entry`, which begins at ring position 0, from its continuation slots.
Result<std::string> readTail(const shm::RingConsumer& ring, const SubmissionEntry& entry,
                             size_t tailBytes, uint32_t slots) {
  std::string tail(entry.tail, std::min(tailBytes, kFirstTail));
  for (uint32_t i = 1; i < slots; ++i) {
    TailEntry next;
    ring.peek(i, &next);
    if (next.type != static_cast<uint8_t>(EntryType::kTail))
      return broken("entry type " + std::to_string(next.type) + " where a tail must follow");
    tail.append(next.data, std::min(tailBytes - tail.size(), kNextTail));
  }
  return tail;
}

Status parseShape(const SubmissionEntry& entry, const std::string& tail, TensorSpec* spec) {
  spec->count = 1;
  for (uint32_t i = 0; i < entry.ndim; ++i) {
    int64_t dim = 0;
    std::memcpy(&dim, tail.data() + i * sizeof dim, sizeof dim);
    if (dim < 0 || (dim > 0 && spec->count > shm::kMaxElements / static_cast<uint64_t>(dim)))
      return broken("dimension " + std::to_string(i) + " of " + std::to_string(dim) +
                    " makes an impossible tensor");
    spec->count *= static_cast<uint64_t>(dim);
    spec->shape.push_back(dim);
  }
  return Status::ok();
}

Status parseSpec(const SubmissionEntry& entry, const std::string& tail, TensorSpec* spec) {
  const auto kind = shm::opKindFromWire(entry.kind);
  const auto dtype = shm::dtypeFromWire(entry.dtype);
  const auto op = shm::reduceOpFromWire(entry.reduceOp);
  if (!kind || !dtype || !op)
    return broken("unknown kind " + std::to_string(entry.kind) + ", dtype " +
                  std::to_string(entry.dtype) + " or reduce op " + std::to_string(entry.reduceOp));
  spec->kind = *kind;
  spec->dtype = *dtype;
  spec->op = *op;
  spec->root = entry.root;
  spec->prescale = entry.prescale;
  spec->postscale = entry.postscale;
  return parseShape(entry, tail, spec);
}

Result<TensorMemory> resolve(const SegmentLookup& lookup, uint32_t segment, uint64_t offset,
                             uint64_t bytes) {
  TensorMemory memory;
  if (bytes == 0) return memory;
  memory.segment = lookup(segment);
  memory.offset = offset;
  if (!memory.segment)
    return broken("segment " + std::to_string(segment) + " is not one of this rank's");
  if (!shm::inBounds(offset, bytes, memory.segment->bytes))
    return broken("tensor at offset " + std::to_string(offset) + " of " + std::to_string(bytes) +
                  " bytes leaves segment " + std::to_string(segment) + " of " +
                  std::to_string(memory.segment->bytes) + " bytes");
  return memory;
}

Result<Item> toRequest(const SubmissionEntry& entry, const std::string& tail,
                       const SegmentLookup& lookup) {
  flow::Request request;
  request.requestId = entry.requestId;
  request.name = tail.substr(size_t{entry.ndim} * sizeof(int64_t));
  request.fallback = (entry.flags & shm::kFlagFallback) != 0;
  request.blocking = (entry.flags & shm::kFlagBlocking) != 0;
  request.threads = (entry.flags & shm::kFlagThreads) != 0;
  request.among = (entry.flags & shm::kFlagAmong) != 0;
  request.directIndex = entry.directIndex;
  request.groupSize = std::max<uint32_t>(1, entry.groupSize);
  if (request.groupSize > 1) request.group = uint64_t{1} << 32 | entry.groupId;
  RUEDA_RETURN_IF_ERROR(parseSpec(entry, tail, &request.spec));
  if (request.groupSize > shm::kMaxInFlight)
    return broken("group of " + std::to_string(request.groupSize) + " operations");
  if (request.spec.kind == shm::OpKind::kAllgather && request.spec.shape.empty())
    return Item(Invalid{entry.requestId, Status(Code::kInvalidArgument,
                                                "rank zero tried to allgather '" + request.name +
                                                    "', a rank-zero tensor")});
  if (request.spec.kind == shm::OpKind::kBarrier) return Item(std::move(request));  // No memory.
  const uint64_t bytes = request.spec.bytes();
  RUEDA_ASSIGN_OR_RETURN(request.input, resolve(lookup, entry.inSegment, entry.inOffset, bytes));
  if (request.spec.kind == shm::OpKind::kAllgather) return Item(std::move(request));
  RUEDA_ASSIGN_OR_RETURN(request.output, resolve(lookup, entry.outSegment, entry.outOffset, bytes));
  const uint64_t apart = request.input.offset > request.output.offset
                             ? request.input.offset - request.output.offset
                             : request.output.offset - request.input.offset;
  if (request.input.segment == request.output.segment && apart != 0 && apart < bytes)
    return broken("input and output of '" + request.name + "' overlap partly");
  return Item(std::move(request));
}

Result<Item> toNote(const SubmissionEntry& entry, const std::string& tail) {
  WaitNote note;
  note.requestId = entry.requestId;
  note.directIndex = entry.directIndex;
  note.threads = (entry.flags & shm::kFlagThreads) != 0;
  note.name = tail.substr(size_t{entry.ndim} * sizeof(int64_t));
  if (entry.type == static_cast<uint8_t>(EntryType::kWaitDirect)) {
    note.kind = WaitNote::Kind::kDirect;
    RUEDA_RETURN_IF_ERROR(parseSpec(entry, tail, &note.spec));
  } else if (entry.type == static_cast<uint8_t>(EntryType::kWaitRequest)) {
    note.kind = WaitNote::Kind::kRequest;
  }
  return Item(std::move(note));
}

Result<Item> toFetch(const SubmissionEntry& entry, const SegmentLookup& lookup) {
  Fetch fetch;
  fetch.requestId = entry.requestId;
  fetch.gatherId = entry.fetchId;
  RUEDA_ASSIGN_OR_RETURN(fetch.output, resolve(lookup, entry.outSegment, entry.outOffset, 1));
  fetch.room = fetch.output.segment->bytes - fetch.output.offset;
  return Item(std::move(fetch));
}

}  // namespace

Result<Item> parseSubmission(const shm::RingConsumer& ring, int64_t available,
                             const SegmentLookup& lookup, uint32_t* slots) {
  SubmissionEntry entry;
  ring.peek(0, &entry);
  const size_t tailBytes = size_t{entry.ndim} * sizeof(int64_t) + entry.nameBytes;
  if (entry.ndim > shm::kMaxDims || entry.nameBytes > shm::kMaxNameBytes)
    return broken(std::to_string(entry.ndim) + " dimensions or a name of " +
                  std::to_string(entry.nameBytes) + " bytes");
  *slots = slotsFor(tailBytes);
  if (int64_t{*slots} > available) return broken("submission whose tail was not published with it");
  RUEDA_ASSIGN_OR_RETURN(const std::string tail, readTail(ring, entry, tailBytes, *slots));
  switch (static_cast<EntryType>(entry.type)) {
    case EntryType::kSubmit:
      return toRequest(entry, tail, lookup);
    case EntryType::kWaitDirect:
    case EntryType::kWaitRequest:
    case EntryType::kWaitEnd:
      return toNote(entry, tail);
    case EntryType::kRelease:
      return Item(Release{entry.requestId});
    case EntryType::kFetch:
      return toFetch(entry, lookup);
    case EntryType::kTail:
      break;
  }
  return broken("entry of type " + std::to_string(entry.type));
}

}  // namespace rueda::submit
