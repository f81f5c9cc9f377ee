// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/client.h"

#include <cstring>
#include <utility>

namespace rueda::client {

using shm::Code;
using shm::OpKind;
using shm::Result;
using shm::Status;
using std::chrono::milliseconds;

namespace {

std::string describe(const Operation& op) {
  return std::string(shm::opKindName(op.kind)) + " '" + std::string(op.name) + "'";
}

}  // namespace

Result<std::unique_ptr<Client>> Client::open(const Options& options) {
  RUEDA_ASSIGN_OR_RETURN(auto connection, Connection::open(options));
  return std::unique_ptr<Client>(new Client(options, std::move(connection)));
}

Client::Client(const Options& options, std::unique_ptr<Connection> connection)
    : options_(options),
      connection_(std::move(connection)),
      memory_(*connection_),
      patience_(*connection_, options.interrupted),
      submitter_(*connection_, options.rank, options.size),
      direct_(*connection_, patience_, *this, options.rank, options.size),
      completions_(reinterpret_cast<char*>(connection_->control()) + shm::kCompletionOffset,
                   &connection_->control()->completeTail, &connection_->control()->completeHead) {}

Client::~Client() = default;

Status Client::health() {
  connection_->pump();
  return connection_->failure();
}

Status Client::checkOperation(const Operation& op) const {
  if (op.name.size() > shm::kMaxNameBytes)
    return {Code::kInvalidArgument, "a name of " + std::to_string(op.name.size()) +
                                        " bytes; at most " + std::to_string(shm::kMaxNameBytes) +
                                        " are allowed"};
  if (op.count > shm::kMaxElements)
    return {Code::kInvalidArgument,
            describe(op) + " has " + std::to_string(op.count) + " elements"};
  if (op.kind == OpKind::kBroadcast && (op.root < 0 || op.root >= options_.size))
    return {Code::kInvalidArgument, describe(op) + ": root " + std::to_string(op.root) +
                                        " is not one of the " + std::to_string(options_.size) +
                                        " ranks"};
  if (op.kind == OpKind::kAllgather && op.ndim == 0)
    return {Code::kInvalidArgument, describe(op) + ": a scalar has no rows to gather"};
  if (op.kind == OpKind::kAllreduce && !shm::canReduce(op.dtype, op.reduceOp))
    return {Code::kInvalidArgument,
            describe(op) + ": " + shm::impossibleReduction(op.dtype, op.reduceOp)};
  const bool needsInput = op.kind == OpKind::kAllreduce || op.kind == OpKind::kAllgather ||
                          (op.kind == OpKind::kBroadcast && op.root == options_.rank);
  const bool needsOutput = op.kind == OpKind::kAllreduce || op.kind == OpKind::kBroadcast;
  if (op.count > 0 &&
      ((needsInput && op.input == nullptr) || (needsOutput && op.output == nullptr)))
    return {Code::kInvalidArgument, describe(op) + ": input or output is NULL"};
  const auto in = reinterpret_cast<uintptr_t>(op.input);
  const auto out = reinterpret_cast<uintptr_t>(op.output);
  const bool overlap = in != out && std::max(in, out) - std::min(in, out) < op.bytes();
  if (needsInput && needsOutput && overlap)
    return {Code::kInvalidArgument, describe(op) + ": input and output overlap partly"};
  return Status::ok();
}

// A job of one rank: the result is the scaled input.
Status Client::runAlone(const Operation& op) const {
  if (op.count == 0 || op.kind == OpKind::kBarrier) return Status::ok();
  const void* input = op.input;
  void* output = op.output;
  if (op.kind == OpKind::kBroadcast) {
    if (output != input) std::memcpy(output, input, op.bytes());
    return Status::ok();
  }
  shm::reduce(op.reduceSpec(1), &input, 1, &output, 1, op.count);
  return Status::ok();
}

Status Client::prepareStaging(const Operation& op) {
  if (op.kind == OpKind::kBarrier || op.bytes() <= shm::kCopyBytes) return Status::ok();
  if (op.kind == OpKind::kBroadcast && op.root != options_.rank) return Status::ok();
  if (memory_.owns(op.input, op.bytes()) &&
      (op.kind == OpKind::kBroadcast || memory_.owns(op.output, op.bytes())))
    return Status::ok();
  const std::lock_guard<std::mutex> lock(stagingMutex_);
  if (direct_.hasStaging()) return Status::ok();
  RUEDA_ASSIGN_OR_RETURN(char* const block, memory_.allocate(2 * DirectPath::kStagingBlock));
  direct_.setStaging(*connection_->segments().locate(block, 2 * DirectPath::kStagingBlock));
  return Status::ok();
}

Status Client::run(const Operation& op) {
  RUEDA_RETURN_IF_ERROR(checkOperation(op));
  if (op.kind == OpKind::kAllgather)
    return {Code::kInvalidArgument, describe(op) + ": an allgather is submitted and waited for"};
  if (connection_->hasFailed()) return connection_->failure();
  if (options_.size == 1) return runAlone(op);
  if (nameCount_.load(std::memory_order_relaxed) > 0) {
    const std::lock_guard<std::mutex> lock(mutex_);
    drainCompletions();
    if (names_.count(std::string(op.name)) > 0)
      return {Code::kAlreadyExists, describe(op) + " is still in flight in this process"};
  }
  bool tried = false;
  uint32_t index = 0;
  if (direct_.offers(op)) {
    RUEDA_RETURN_IF_ERROR(prepareStaging(op));
    switch (direct_.run(op, &index, &tried)) {
      case DirectPath::End::kDone:
        return Status::ok();
      case DirectPath::End::kFailed:
        return connection_->failure();
      case DirectPath::End::kFallback:
        break;
      case DirectPath::End::kInterrupted:
        connection_->fail({Code::kInterrupted, "interrupted in " + describe(op)});
        return connection_->failure();
    }
  }
  return runThroughRing(op, tried, index);
}

Status Client::runThroughRing(const Operation& op, bool tried, uint32_t directIndex) {
  Submission submission;
  submission.flags = shm::kFlagBlocking;
  if (tried) submission.flags |= shm::kFlagFallback;
  submission.directIndex = directIndex;
  Status begun = prepare(op, &submission);
  if (begun.isOk()) begun = submitter_.write({submission});
  if (!begun.isOk()) {
    forget(submission.requestId, true);
    if (tried) direct_.detourEnded(std::nullopt);
    return begun;
  }
  Status ended = wait(submission.requestId, milliseconds(0));
  if (ended.code() == Code::kInterrupted)
    connection_->fail({Code::kInterrupted, "interrupted in " + describe(op)});
  return ended;
}

// Registers an operation and makes its memory reachable: foreign memory is copied into a block.
Status Client::prepare(const Operation& op, Submission* submission) {
  Flight flight;
  flight.kind = op.kind;
  flight.name = std::string(op.name);
  flight.isDetour = (submission->flags & shm::kFlagFallback) != 0;
  flight.bytes = op.bytes();
  const auto& segments = connection_->segments();
  const bool isGather = op.kind == OpKind::kAllgather;
  const bool receivesOnly = op.kind == OpKind::kBroadcast && op.root != options_.rank;
  const bool hasMemory = op.kind != OpKind::kBarrier && op.count > 0;
  auto in =
      hasMemory ? segments.locate(receivesOnly ? op.output : op.input, flight.bytes) : Place{};
  auto out = hasMemory && !isGather ? segments.locate(op.output, flight.bytes) : in;
  if (isGather) {  // Of peers' rows too, so it must not depend on how many are here.
    flight.rowBytes = shm::dtypeSize(op.dtype);
    for (uint32_t i = 1; i < op.ndim; ++i) flight.rowBytes *= static_cast<uint64_t>(op.shape[i]);
  }
  if (hasMemory && (isGather || !in || !out)) {
    RUEDA_ASSIGN_OR_RETURN(flight.block, memory_.allocate(flight.bytes));
    if (!receivesOnly) std::memcpy(flight.block, op.input, flight.bytes);
    if (!isGather) flight.copyTo = op.output;
    in = out = segments.locate(flight.block, flight.bytes);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!names_.insert(flight.name).second) {
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
  submission->input = *in;
  submission->output = *out;
  return Status::ok();
}

void Client::forget(uint64_t id, bool neverSubmitted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (neverSubmitted) freeGatherInput(id);
  const auto it = flights_.find(id);
  if (it == flights_.end()) return;
  if (!it->second.done && it->second.isNamed) names_.erase(it->second.name);
  nameCount_.store(names_.size(), std::memory_order_relaxed);
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
  for (const Operation& op : ops) RUEDA_RETURN_IF_ERROR(checkOperation(op));
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

void Client::sleepsInDirect(const Operation& op, uint32_t index) {
  Submission note;
  note.type = shm::EntryType::kWaitDirect;
  note.op = op;
  note.directIndex = index;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    directNote_ = note.requestId = nextId_++;
  }
  (void)submitter_.write({note});
}

void Client::wokeFromDirect() {
  Submission note;
  note.type = shm::EntryType::kWaitEnd;
  note.requestId = directNote_;
  (void)submitter_.write({note});
}

}  // namespace rueda::client
