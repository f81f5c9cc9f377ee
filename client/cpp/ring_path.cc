// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/ring_path.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "client/cpp/direct.h"
#include "shm/copy.h"

namespace rueda::client {

using shm::Code;
using shm::OpKind;
using shm::Result;
using shm::Status;
using std::chrono::milliseconds;

namespace {

Status unknownHandle(uint64_t handle) {
  return {Code::kInvalidArgument,
          "handle " + std::to_string(handle) + " is not one of an operation in flight"};
}

}  // namespace

RingPath::RingPath(Connection& connection, Memory& memory, Patience& patience,
                   const ProcessSets& sets, FlightTimer& timer)
    : connection_(connection),
      memory_(memory),
      patience_(patience),
      sets_(sets),
      timer_(timer),
      submitter_(connection, sets.rank(), sets.size()),
      flights_(connection, memory, submitter_, timer),
      notes_(submitter_, flights_),
      rows_(connection, memory, patience, submitter_, flights_) {}

Status RingPath::run(const Operation& op, Submission* submission, DirectPath* detour,
                     int64_t* value) {
  Status begun = prepare(op, submission, detour);
  if (begun.isOk()) begun = submitter_.write({*submission});
  if (!begun.isOk()) {
    flights_.forget(submission->requestId, true);
    if (detour != nullptr) detour->detourEnded(std::nullopt);
    return begun;
  }
  Status ended = await(submission->requestId, milliseconds(0), value);
  if (ended.code() == Code::kInterrupted) {
    // It stays, since the daemon may still work on it, but this thread lets go of the path.
    flights_.with(submission->requestId, [](Flight& flight) { flight.detour = nullptr; });
    connection_.fail({Code::kInterrupted, "interrupted in " + describe(op)});
  }
  if (ended.isOk() && shm::gathers(op.kind)) giveRows(op, submission->requestId);
  return ended;
}

// Makes an operation's memory reachable: where it is foreign, or peers may read it for longer than
// the caller knows (a gather), a block stands in for it.
Status RingPath::placeMemory(const Operation& op, Flight* flight, Submission* submission) {
  if (shm::isAgreement(op.kind) || op.count == 0 || op.lacksRows()) return Status::ok();
  const bool isGather = shm::gathers(op.kind);
  const bool scatters = op.kind == OpKind::kReducescatter;
  const bool receivesOnly = op.kind == OpKind::kBroadcast && op.root != sets_.rank();
  const auto& segments = connection_.segments();
  auto in = segments.locate(receivesOnly ? op.output : op.input, op.bytes());
  auto out = isGather ? in : segments.locate(op.output, flight->resultBytes);
  if (scatters && flight->resultBytes == 0) out = Place{};
  if (isGather || !in || !out) {
    // In place but for a reducescatter, whose result follows its input.
    const uint64_t inBytes = scatters ? (op.bytes() + 63) / 64 * 64 : 0;
    RUEDA_ASSIGN_OR_RETURN(flight->block,
                           memory_.allocate(scatters ? inBytes + flight->resultBytes : op.bytes()));
    if (!receivesOnly) shm::copyLarge(flight->block, op.input, op.bytes());
    if (!isGather) flight->copyTo = op.output;
    flight->result = flight->block + inBytes;
    in = segments.locate(flight->block, op.bytes());
    out = isGather ? in : segments.locate(flight->result, flight->resultBytes);
    if (flight->resultBytes == 0 && scatters) out = Place{};
  }
  submission->input = *in;
  submission->output = *out;
  return Status::ok();
}

// Registers an operation and makes its memory reachable.
Status RingPath::prepare(const Operation& op, Submission* submission, DirectPath* detour) {
  Flight flight;
  flight.kind = op.kind;
  flight.name = std::string(op.name);
  flight.set = op.processSet;
  const auto place = sets_.placeIn(op.processSet);
  if (!place.isOk() && detour != nullptr)
    return {Code::kUnavailable, "process set " + std::to_string(op.processSet) +
                                    " was removed while the operation waited in it"};
  if (!place.isOk()) return place.status();  // Removed since it was checked.
  const int size = place.value().size;
  flight.detour = detour;
  const bool isGather = shm::gathers(op.kind);
  if (isGather) {
    flight.rowBytes = op.rowBytes();  // Of peers' rows too: not by how many are here.
    flight.output = op.output;
    flight.outputRoom = op.outputRoom;
  } else {
    flight.resultBytes = op.resultBytes(place.value().place, size);
  }
  if (op.kind == OpKind::kAlltoall && !op.lacksRows()) {
    submission->numbers.assign(static_cast<size_t>(size), op.shape[0] / size);
    if (op.splits != nullptr) submission->numbers.assign(op.splits, op.splits + op.splitCount);
  }
  submission->refusal = placeMemory(op, &flight, submission);
  // All ranks learn together that this one has no memory: else they would wait for it.
  if (submission->refusal.code() != Code::kResourceExhausted)
    RUEDA_RETURN_IF_ERROR(submission->refusal);
  timer_.stamp(op, &flight, submission);
  bool isAmong = false;
  RUEDA_ASSIGN_OR_RETURN(submission->requestId, flights_.add(std::move(flight), &isAmong));
  if (isAmong) submission->flags |= shm::kFlagAmong;
  submission->op = op;
  return Status::ok();
}

// Until one more operation may be in flight.
Status RingPath::awaitRoom() {
  if (flights_.hasRoom()) return Status::ok();
  const Waited room = patience_.untilCompleted(
      [this] { return flights_.hasRoom(); }, connection_.control()->completionBell,
      [this] { submitter_.settle(); }, [] {}, milliseconds(0));
  if (room == Waited::kReady) return Status::ok();
  return room == Waited::kInterrupted ? Status(Code::kInterrupted, "interrupted in submit")
                                      : connection_.failure();
}

Status RingPath::submit(const std::vector<Operation>& ops, std::vector<uint64_t>* handles) {
  if (connection_.hasFailed()) return connection_.failure();
  if (ops.size() >= shm::kMaxInFlight)
    return {Code::kResourceExhausted, "a group of " + std::to_string(ops.size()) +
                                          " operations; fewer than " +
                                          std::to_string(shm::kMaxInFlight) + " are allowed"};
  for (const Operation& op : ops) {
    RUEDA_RETURN_IF_ERROR(checkOperation(op, sets_));
    if (op.processSet != ops.front().processSet)
      return {Code::kInvalidArgument,
              describe(op) + " is of process set " + std::to_string(op.processSet) +
                  ", the first of its group of " + std::to_string(ops.front().processSet)};
  }
  std::vector<Submission> submissions(ops.size());
  Status status;
  for (size_t i = 0; i < ops.size() && status.isOk(); ++i) {
    status = awaitRoom();
    if (status.isOk()) status = prepare(ops[i], &submissions[i], nullptr);
  }
  if (status.isOk() && ops.size() > 1) {
    const uint32_t group = flights_.newGroup();
    for (Submission& submission : submissions) {
      submission.groupSize = static_cast<uint32_t>(ops.size());
      submission.groupId = group;
    }
  }
  if (status.isOk()) status = submitter_.start(submissions);
  handles->clear();
  for (const Submission& submission : submissions) {
    if (!status.isOk() && submission.requestId != 0) flights_.forget(submission.requestId, true);
    handles->push_back(submission.requestId);
  }
  return status;
}

Result<bool> RingPath::poll(uint64_t handle) {
  const bool isDone = flights_.isDone(handle);
  if (!flights_.has(handle)) return unknownHandle(handle);
  if (isDone) return true;
  submitter_.settle();
  connection_.pump();
  return connection_.hasFailed();
}

// Tells the daemon that this thread sleeps until that one has an outcome.
void RingPath::noteWait(uint64_t handle) {
  Submission entry;
  std::string name;
  const bool isThere = flights_.with(handle, [&](const Flight& flight) {
    name = flight.name;
    entry.op.processSet = flight.set;
  });
  if (!isThere) return;
  entry.type = shm::EntryType::kWaitRequest;
  entry.requestId = handle;
  entry.op.name = name;
  (void)submitter_.write({entry});
}

// A wait that did not come to the outcome.
Status RingPath::endWait(uint64_t handle, Waited waited, milliseconds timeout) {
  if (waited == Waited::kFailed) {
    flights_.forget(handle);
    return connection_.failure();
  }
  Submission end;
  end.type = shm::EntryType::kWaitEnd;
  end.requestId = handle;
  (void)submitter_.write({end});
  if (waited == Waited::kInterrupted) return {Code::kInterrupted, "interrupted while waiting"};
  return {Code::kDeadlineExceeded, "no outcome within " + std::to_string(timeout.count()) + " ms"};
}

Status RingPath::await(uint64_t handle, milliseconds timeout, int64_t* value) {
  if (!flights_.isDone(handle))
    submitter_.hurry();
  else if (!flights_.has(handle))
    return unknownHandle(handle);
  const Waited waited = patience_.untilCompleted(
      [&] { return flights_.isDone(handle); }, connection_.control()->completionBell,
      [this] { submitter_.settle(); }, [this, handle] { noteWait(handle); }, timeout);
  if (waited != Waited::kReady) return endWait(handle, waited, timeout);
  OpKind kind = OpKind::kBarrier;
  Status status;
  const bool isThere = flights_.with(handle, [&](Flight& flight) {
    kind = flight.kind;
    status = flight.status;
    if (value != nullptr) *value = flight.value;
    if (status.isOk() && flight.copyTo != nullptr) FlightTimer::copyOut(&flight);
  });
  if (!isThere) return unknownHandle(handle);  // Another thread waited for it too.
  if (shm::gathers(kind) && status.isOk()) return collect(handle);
  flights_.forget(handle);
  return status;
}

// Brings the rows of a gather that has ended well to its caller, once.
Status RingPath::collect(uint64_t handle) {
  bool isCollected = false;
  flights_.with(handle, [&](const Flight& flight) { isCollected = flight.gathered != nullptr; });
  if (isCollected) return Status::ok();
  const int64_t begin = shm::nanosOf(std::chrono::steady_clock::now());
  const Status collected = rows_.collect(handle);
  flights_.with(handle, [&](Flight& f) { timer_.noteCollected(&f, begin, collected); });
  Submission release;
  release.type = shm::EntryType::kRelease;
  release.requestId = handle;
  const Status released = submitter_.write({release});
  if (collected.isOk()) return released;
  flights_.forget(handle);
  return collected;
}

Status RingPath::join(Submission* submission, int64_t* value) {
  const Operation op = submission->op;
  if (op.processSet != 0) return run(op, submission, nullptr, value);
  submitter_.beginJoin();
  Status ended = run(op, submission, nullptr, value);
  submitter_.endJoin(!ended.isOk());
  return ended;
}

// Hands the rows of a blocking gather to its caller.
void RingPath::giveRows(const Operation& op, uint64_t id) {
  flights_.with(id, [&op](Flight& flight) {
    const auto& firstDims = flight.gathered->firstDims;
    if (op.received != nullptr) std::copy(firstDims.begin(), firstDims.end(), op.received);
    if (op.output == nullptr) *op.result = std::exchange(flight.gatheredBlock, nullptr);
  });
  flights_.forget(id);
}

const Gathered* RingPath::gathered(uint64_t handle) {
  const Gathered* rows = nullptr;
  flights_.with(handle, [&rows](const Flight& flight) { rows = flight.gathered.get(); });
  return rows;
}

Status RingPath::release(uint64_t handle) {
  bool isGathered = false;
  const bool isThere = flights_.with(
      handle, [&isGathered](const Flight& flight) { isGathered = flight.gathered != nullptr; });
  if (!isThere) return unknownHandle(handle);
  if (!isGathered)
    return {Code::kInvalidArgument, "handle " + std::to_string(handle) + " is no finished gather"};
  flights_.forget(handle);
  return Status::ok();
}

}  // namespace rueda::client
