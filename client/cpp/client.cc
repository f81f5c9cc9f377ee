// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/client.h"

#include <cstring>
#include <utility>

#include "shm/copy.h"

namespace rueda::client {

using shm::Code;
using shm::OpKind;
using shm::Result;
using shm::Status;
using std::chrono::milliseconds;

Result<std::unique_ptr<Client>> Client::open(const Options& options) {
  RUEDA_ASSIGN_OR_RETURN(auto connection, Connection::open(options));
  std::unique_ptr<Client> client(new Client(options, std::move(connection)));
  if (options.timeline.empty() || options.timeline == "DYNAMIC") return client;
  const Status started = client->startTimeline(options.timeline, options.marksCycles);
  if (!started.isOk()) logTimeline(started.message() + "; the job runs without one");
  return client;
}

Client::Client(const Options& options, std::unique_ptr<Connection> connection)
    : options_(options),
      connection_(std::move(connection)),
      memory_(*connection_),
      patience_(*connection_, options.interrupted),
      submitter_(*connection_, options.rank, options.size),
      sets_(options.rank, options.size),
      directs_(*connection_, memory_, patience_, *this, {0, options.rank, options.size},
               [this](uint32_t set) { leaveBoard(set); }),
      completions_(reinterpret_cast<char*>(connection_->control()) + shm::kCompletionOffset,
                   &connection_->control()->completeTail, &connection_->control()->completeHead) {}

Status Client::health() {
  connection_->pump();
  return connection_->failure();
}

// A job of one rank: the result is the scaled input.
Status Client::runAlone(const Operation& op) {
  if (op.lacksRows()) return {Code::kMismatch, describe(op) + ": a rank-zero tensor has no rows"};
  if (shm::gathers(op.kind)) return gatherAlone(op);
  if (op.count == 0 || op.kind == OpKind::kBarrier) return Status::ok();
  const void* input = op.input;
  void* output = op.output;
  if (op.kind == OpKind::kBroadcast) {
    if (output != input) std::memcpy(output, input, op.bytes());
    return Status::ok();
  }
  shm::ReduceSpec spec = op.reduceSpec(1);
  if (spec.op == shm::ReduceOp::kAdasum) spec.op = shm::ReduceOp::kSum;
  shm::reduce(spec, &input, 1, &output, 1, op.count);
  return Status::ok();
}

Status Client::gatherAlone(const Operation& op) {
  const int64_t rows = op.splits == nullptr ? op.shape[0] : op.splits[0];
  const uint64_t bytes = static_cast<uint64_t>(rows) * op.rowBytes();
  if (op.received != nullptr) op.received[0] = rows;
  if (op.output != nullptr && bytes > op.outputRoom)
    return noRoom(op.kind, op.name, bytes, op.outputRoom);
  void* to = op.output;
  if (to == nullptr && bytes > 0) {
    RUEDA_ASSIGN_OR_RETURN(to, memory_.allocate(bytes));
  }
  if (bytes > 0) std::memcpy(to, op.input, bytes);
  if (op.output == nullptr) *op.result = to;
  return Status::ok();
}

Status Client::run(const Operation& op) {
  RUEDA_RETURN_IF_ERROR(checkOperation(op, sets_, options_.rank));
  if (shm::gathers(op.kind)) RUEDA_RETURN_IF_ERROR(checkResult(op));
  if (connection_->hasFailed()) return connection_->failure();
  // Operations that are timed take the ring: it is the daemon that knows when the ranks come.
  const bool isTimed = timeline_.isRunning();
  if (options_.size == 1 && op.processSet == 0 && !isTimed) return runAlone(op);
  if (nameCount_.load(std::memory_order_relaxed) > 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    drainCompletions();
    if (names_.count(keyOf(op.name, op.processSet)) > 0)
      return {Code::kAlreadyExists, describe(op) + " is still in flight in this process"};
  }
  std::shared_ptr<DirectPath> held;
  DirectPath* const path = directs_.find(op.processSet, &held);
  DirectPath::Attempt attempt;
  if (!isTimed && path != nullptr && path->offers(op)) {
    const auto ended =
        op.processSet == 0 ? runDirect(op, path, &attempt) : runDirect(placed(op), path, &attempt);
    if (ended) return *ended;
  }
  Submission submission;
  submission.flags = shm::kFlagBlocking;
  if (attempt.tried) submission.flags |= shm::kFlagFallback;
  submission.directIndex = attempt.index;
  return runSubmission(op, &submission, attempt.tried ? path : nullptr, nullptr);
}

// The operation as the board of its set sees it.
Operation Client::placed(const Operation& op) const {
  Operation placed = op;
  if (op.kind == OpKind::kBroadcast) placed.root = sets_.placeOf(op.processSet, op.root);
  return placed;
}

// nullopt: the operation has been given back.
std::optional<Status> Client::runDirect(const Operation& op, DirectPath* path,
                                        DirectPath::Attempt* attempt) {
  RUEDA_RETURN_IF_ERROR(path->prepare(op));
  switch (path->run(op, attempt)) {
    case End::kDone:
      return attempt->status;
    case End::kFailed:
      break;
    case End::kFallback:
      return std::nullopt;
    case End::kInterrupted:
      connection_->fail({Code::kInterrupted, "interrupted in " + describe(op)});
      break;
  }
  return connection_->failure();
}

Status Client::runSubmission(const Operation& op, Submission* submission, DirectPath* detour,
                             int64_t* value) {
  Status begun = prepare(op, submission, detour);
  if (begun.isOk()) begun = submitter_.write({*submission});
  if (!begun.isOk()) {
    forget(submission->requestId, true);
    if (detour != nullptr) detour->detourEnded(std::nullopt);
    return begun;
  }
  Status ended = await(submission->requestId, milliseconds(0), value);
  if (ended.code() == Code::kInterrupted)
    connection_->fail({Code::kInterrupted, "interrupted in " + describe(op)});
  if (ended.isOk() && shm::gathers(op.kind)) giveRows(op, submission->requestId);
  return ended;
}

// Makes an operation's memory reachable: where it is foreign, or peers may read it for longer than
// the caller knows (a gather), a block stands in for it.
Status Client::placeMemory(const Operation& op, Flight* flight, Submission* submission) {
  if (shm::isAgreement(op.kind) || op.count == 0 || op.lacksRows()) return Status::ok();
  const bool isGather = shm::gathers(op.kind);
  const bool scatters = op.kind == OpKind::kReducescatter;
  const bool receivesOnly = op.kind == OpKind::kBroadcast && op.root != options_.rank;
  const auto& segments = connection_->segments();
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
Status Client::prepare(const Operation& op, Submission* submission, DirectPath* detour) {
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
  RUEDA_RETURN_IF_ERROR(placeMemory(op, &flight, submission));
  if (!options_.timeline.empty()) stamp(op, &flight, submission);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!names_.insert(keyOf(flight.name, flight.set)).second) {
    if (flight.block != nullptr) (void)memory_.free(flight.block);
    return {Code::kAlreadyExists, describe(op) + " is still in flight in this process"};
  }
  nameCount_.store(names_.size(), std::memory_order_relaxed);
  const uint64_t id = nextId_++;
  if (isGather && flight.block != nullptr) gatherInputs_[id] = std::exchange(flight.block, nullptr);
  flights_[id] = std::move(flight);
  if (flights_.size() > 1) submission->flags |= shm::kFlagAmong;
  submission->op = op;
  submission->requestId = id;
  return Status::ok();
}

void Client::forget(uint64_t id, bool neverSubmitted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (neverSubmitted) freeGatherInput(id);
  const auto it = flights_.find(id);
  if (it == flights_.end()) return;
  if (!it->second.done && it->second.isNamed) names_.erase(keyOf(it->second.name, it->second.set));
  nameCount_.store(names_.size(), std::memory_order_relaxed);
  if (!neverSubmitted) recordTimed(&it->second);
  for (char* block : {it->second.block, it->second.gatheredBlock})
    if (block != nullptr) (void)memory_.free(block);
  flights_.erase(it);
}

bool Client::hasRoom() {
  const std::lock_guard<std::mutex> lock(mutex_);
  drainCompletions();
  return names_.size() < shm::kMaxInFlight - 1;
}

Status Client::submit(const std::vector<Operation>& ops, std::vector<uint64_t>* handles) {
  if (connection_->hasFailed()) return connection_->failure();
  if (ops.size() >= shm::kMaxInFlight)
    return {Code::kResourceExhausted, "a group of " + std::to_string(ops.size()) +
                                          " operations; fewer than " +
                                          std::to_string(shm::kMaxInFlight) + " are allowed"};
  for (const Operation& op : ops) {
    RUEDA_RETURN_IF_ERROR(checkOperation(op, sets_, options_.rank));
    if (op.processSet != ops.front().processSet)
      return {Code::kInvalidArgument,
              describe(op) + " is of process set " + std::to_string(op.processSet) +
                  ", the first of its group of " + std::to_string(ops.front().processSet)};
  }
  std::vector<Submission> submissions(ops.size());
  Status status;
  for (size_t i = 0; i < ops.size() && status.isOk(); ++i) {
    if (!hasRoom()) {
      const Waited room = patience_.untilCompleted(
          [this] { return hasRoom(); }, connection_->control()->completionBell,
          [this] { submitter_.settle(); }, [] {}, milliseconds(0));
      if (room != Waited::kReady)
        status = room == Waited::kInterrupted ? Status(Code::kInterrupted, "interrupted in submit")
                                              : connection_->failure();
    }
    if (status.isOk()) status = prepare(ops[i], &submissions[i]);
  }
  if (status.isOk() && ops.size() > 1) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const uint32_t group = nextGroup_++;
    for (Submission& submission : submissions) {
      submission.groupSize = static_cast<uint32_t>(ops.size());
      submission.groupId = group;
    }
  }
  if (status.isOk()) status = submitter_.start(submissions);
  handles->clear();
  for (const Submission& submission : submissions) {
    if (!status.isOk() && submission.requestId != 0) forget(submission.requestId, true);
    handles->push_back(submission.requestId);
  }
  return status;
}

uint64_t Client::sleepsInDirect(const Operation& op, uint32_t index) {
  Submission note;
  note.type = shm::EntryType::kWaitDirect;
  note.op = op;
  note.directIndex = index;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    note.requestId = nextId_++;
  }
  (void)submitter_.write({note});
  return note.requestId;
}

void Client::wokeFromDirect(uint64_t wait) {
  Submission note;
  note.type = shm::EntryType::kWaitEnd;
  note.requestId = wait;
  (void)submitter_.write({note});
}

void Client::leaveBoard(uint32_t set) {
  if (connection_->isForked() || connection_->hasFailed()) return;
  Submission leave;
  leave.type = shm::EntryType::kLeaveSet;
  leave.op.processSet = set;
  (void)submitter_.write({leave});
}

}  // namespace rueda::client
