// SPDX-License-Identifier: Apache-2.0
#include "daemon/submit/intake.h"

#include <cmath>
#include <cstring>

#include "daemon/base/printable.h"
#include "shm/entry_tail.h"
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

Status broken(const std::string& what) { return {Code::kProtocolError, what}; }

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

// Why the rank cannot take part. Only what has memory can lack it.
Status takeRefusal(const SubmissionEntry& entry, const std::string& reason,
                   flow::Request* request) {
  const auto code = static_cast<Code>(entry.inSegment);
  if (code != Code::kResourceExhausted || shm::isAgreement(request->spec.kind))
    return broken(std::string(shm::opKindName(request->spec.kind)) + " '" +
                  base::printable(request->name) + "' refused with code " +
                  std::to_string(entry.inSegment));
  request->refusal = {code, base::printable(reason)};
  return Status::ok();
}

int64_t readStamp(const SubmissionEntry& entry, const std::string& tail) {
  int64_t stamp = 0;
  if (shm::isStamped(entry))
    std::memcpy(&stamp, tail.data() + shm::numberBytes(entry) - sizeof stamp, sizeof stamp);
  return stamp;
}

std::vector<int64_t> readNumbers(const SubmissionEntry& entry, const std::string& tail) {
  std::vector<int64_t> numbers(shm::numbersOf(entry));
  if (!numbers.empty())
    std::memcpy(numbers.data(), tail.data() + entry.ndim * sizeof(int64_t),
                numbers.size() * sizeof(int64_t));
  return numbers;
}

Status checkSplits(const TensorSpec& spec, int size) {
  if (spec.splits.size() != static_cast<size_t>(size))
    return broken(std::to_string(spec.splits.size()) + " splits for " + std::to_string(size) +
                  " ranks");
  int64_t left = spec.shape.front();
  for (const int64_t split : spec.splits) {
    if (split < 0 || split > left)
      return broken("splits of more than the " + std::to_string(spec.shape.front()) + " rows");
    left -= split;
  }
  return Status::ok();
}

// What the numbers in the tail mean. REQUIRES: the spec has its shape, and rows if it needs them.
Status takeNumbers(std::vector<int64_t> numbers, flow::Request* request, int size) {
  TensorSpec& spec = request->spec;
  const bool isAboutSets =
      spec.kind == shm::OpKind::kAddSet || spec.kind == shm::OpKind::kRemoveSet;
  if (isAboutSets && request->set != 0)
    return broken("process sets are made and dissolved by all ranks of the job");
  switch (spec.kind) {
    case shm::OpKind::kAlltoall:
      spec.splits = std::move(numbers);
      return checkSplits(spec, size);
    case shm::OpKind::kAddSet:
      spec.ranks = std::move(numbers);
      return Status::ok();
    case shm::OpKind::kRemoveSet:
      if (numbers.size() != 1 || numbers[0] < 0 || numbers[0] > UINT32_MAX)
        return broken("process set to remove: " + flow::shapeText(numbers));
      spec.dissolved = static_cast<flow::SetId>(numbers[0]);
      return Status::ok();
    case shm::OpKind::kAllreduce:
    case shm::OpKind::kAllgather:
    case shm::OpKind::kBroadcast:
    case shm::OpKind::kBarrier:
    case shm::OpKind::kReducescatter:
    case shm::OpKind::kJoin:
      break;
  }
  if (numbers.empty()) return Status::ok();
  return broken(std::to_string(numbers.size()) + " numbers with an operation that takes none");
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

// Where the tensors lie. What is read and what is written may only be the very same bytes.
Status resolveMemory(const SubmissionEntry& entry, const Origin& origin, int size,
                     flow::Request* request) {
  const TensorSpec& spec = request->spec;
  if (shm::isAgreement(spec.kind)) return Status::ok();
  const uint64_t bytes = spec.bytes();
  RUEDA_ASSIGN_OR_RETURN(request->input,
                         resolve(origin.lookup, entry.inSegment, entry.inOffset, bytes));
  if (shm::gathers(spec.kind)) return Status::ok();
  const bool scatters = spec.kind == shm::OpKind::kReducescatter;
  const uint64_t outBytes = scatters ? spec.rowsFor(request->place, size).count *
                                           spec.rowElements() * shm::dtypeSize(spec.dtype)
                                     : bytes;
  RUEDA_ASSIGN_OR_RETURN(request->output,
                         resolve(origin.lookup, entry.outSegment, entry.outOffset, outBytes));
  const uint64_t in = request->input.offset;
  const uint64_t out = request->output.offset;
  const bool areSame = in == out && !scatters;
  if (request->input.segment == request->output.segment && outBytes > 0 && !areSame &&
      in < out + outBytes && out < in + bytes)
    return broken("input and output of '" + base::printable(request->name) + "' overlap partly");
  return Status::ok();
}

Status notInSet(const flow::Request& request, int rank) {
  const std::string set = "process set " + std::to_string(request.set);
  if (request.fallback)  // It was in the set, or could not have been on its board.
    return {Code::kUnavailable, set + " was removed while the operation waited in it"};
  return {Code::kInvalidArgument, std::string(shm::opKindName(request.spec.kind)) + " '" +
                                      base::printable(request.name) + "': rank " +
                                      std::to_string(rank) + " does not belong to " + set};
}

Result<Item> toRequest(const SubmissionEntry& entry, const std::string& tail,
                       const Origin& origin) {
  flow::Request request;
  request.requestId = entry.requestId;
  request.name = tail.substr(shm::numberBytes(entry), entry.nameBytes);
  request.fallback = (entry.flags & shm::kFlagFallback) != 0;
  request.blocking = (entry.flags & shm::kFlagBlocking) != 0;
  request.threads = (entry.flags & shm::kFlagThreads) != 0;
  request.among = (entry.flags & shm::kFlagAmong) != 0;
  request.leftOut = (entry.flags & shm::kFlagLeftOut) != 0;
  request.timed = (entry.flags & shm::kFlagTimed) != 0;
  request.submittedNs = readStamp(entry, tail);
  request.priority = entry.priority;
  request.set = entry.processSet;
  request.directIndex = entry.directIndex;
  request.groupSize = std::max<uint32_t>(1, entry.groupSize);
  if (request.groupSize > 1) request.group = uint64_t{1} << 32 | entry.groupId;
  RUEDA_RETURN_IF_ERROR(parseSpec(entry, tail, &request.spec));
  if (request.groupSize > shm::kMaxInFlight)
    return broken("group of " + std::to_string(request.groupSize) + " operations");
  const shm::OpKind kind = request.spec.kind;
  const auto place = origin.placeIn(entry.processSet);
  if (!place) return Item(Invalid{entry.requestId, notInSet(request, origin.rank)});
  request.place = place->place;
  if (shm::isRefused(entry))
    RUEDA_RETURN_IF_ERROR(
        takeRefusal(entry, tail.substr(shm::numberBytes(entry) + entry.nameBytes), &request));
  // A scalar has no rows: the ranks are told together.
  if (shm::needsRows(kind) && request.spec.shape.empty()) return Item(std::move(request));
  RUEDA_RETURN_IF_ERROR(takeNumbers(readNumbers(entry, tail), &request, place->size));
  if (request.refusal.isOk())
    RUEDA_RETURN_IF_ERROR(resolveMemory(entry, origin, place->size, &request));
  return Item(std::move(request));
}

Result<Item> toNote(const SubmissionEntry& entry, const std::string& tail) {
  WaitNote note;
  note.requestId = entry.requestId;
  note.directIndex = entry.directIndex;
  note.set = entry.processSet;
  note.threads = (entry.flags & shm::kFlagThreads) != 0;
  note.name = tail.substr(shm::numberBytes(entry));
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
  fetch.gatherId = entry.extra;
  RUEDA_ASSIGN_OR_RETURN(fetch.output, resolve(lookup, entry.outSegment, entry.outOffset, 1));
  fetch.room = fetch.output.segment->bytes - fetch.output.offset;
  return Item(std::move(fetch));
}

Status tooLong(const SubmissionEntry& entry) {
  if (shm::reasonBytes(entry) > shm::kMaxReasonBytes)
    return broken("a reason of " + std::to_string(shm::reasonBytes(entry)) + " bytes");
  return broken(std::to_string(entry.ndim) + " dimensions, " +
                std::to_string(shm::numbersOf(entry)) + " numbers or a name of " +
                std::to_string(entry.nameBytes) + " bytes");
}

}  // namespace

Result<Item> parseSubmission(const shm::RingConsumer& ring, int64_t available, const Origin& origin,
                             uint32_t* slots) {
  SubmissionEntry entry;
  ring.peek(0, &entry);
  const auto bytes = shm::tailBytes(entry);
  if (!bytes) return tooLong(entry);
  *slots = shm::slotsFor<SubmissionEntry>(*bytes);
  if (int64_t{*slots} > available) return broken("submission whose tail was not published with it");
  std::string tail;
  if (const uint8_t type = shm::readTail(ring, entry, *bytes, &tail); type != shm::kTailType)
    return broken("entry type " + std::to_string(type) + " where a tail must follow");
  switch (static_cast<EntryType>(entry.type)) {
    case EntryType::kSubmit:
      return toRequest(entry, tail, origin);
    case EntryType::kWaitDirect:
    case EntryType::kWaitRequest:
    case EntryType::kWaitEnd:
      return toNote(entry, tail);
    case EntryType::kRelease:
      return Item(Release{entry.requestId});
    case EntryType::kLeaveSet:
      return Item(Leave{entry.processSet});
    case EntryType::kFetch:
      return toFetch(entry, origin.lookup);
    case EntryType::kTail:
      break;
  }
  return broken("entry of type " + std::to_string(entry.type));
}

}  // namespace rueda::submit
