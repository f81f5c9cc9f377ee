// SPDX-License-Identifier: Apache-2.0
// Allgather and alltoall: the engine agrees on who gives how many rows to whom, and tells every
// rank where its rows lie. Ranks copy the rows themselves, or, where memory is isolated, ask for a
// copy (fetch). The inputs are blocks of the clients' arenas, given back when all ranks have
// released the gather.
#include <utility>

#include "daemon/engine/engine.h"

namespace rueda::engine {

using flow::Decision;
using flow::FusedOp;
using flow::Outcome;
using shm::Code;
using shm::Status;

namespace {

// Where the rows lie that `giver` has for the rank at place `receiver`.
shm::RowBlock rowsOf(const flow::Request& giver, int receiver, int size) {
  const shm::RowRange rows = giver.spec.rowsFor(receiver, size);
  const uint64_t rowBytes = giver.spec.rowElements() * shm::dtypeSize(giver.spec.dtype);
  return {giver.input.segment ? giver.input.segment->id : 0, 0,
          giver.input.offset + rows.begin * rowBytes, static_cast<int64_t>(rows.count)};
}

// Of one client: each waits in a thread of its own, and takes kilobytes here until it has run.
constexpr uint32_t kMaxFetches = 64;

}  // namespace

void Engine::finishGather(Job* job, Decision decision) {
  if (job->gathers.size() >= uint64_t{shm::kMaxInFlight} * static_cast<uint64_t>(job->size))
    return endDecision(
        job, decision,
        Status(Code::kResourceExhausted,
               std::to_string(job->gathers.size()) + " gathered results have not been released"));
  auto gather = std::make_shared<Gather>();
  gather->size = decision.size();
  for (const flow::Request& request : decision.requests) gather->holders.insert(request.rank);
  ++job->opsCompleted;
  const std::optional<uint32_t> directIndex = resumeIndex(decision);
  for (const flow::Request& request : decision.requests) {
    job->bytesReduced += request.spec.bytes();
    job->requestWaits[static_cast<size_t>(request.rank)].erase(request.requestId);
    job->gathers[gatherKey(request.rank, request.requestId)] = {gather, request.place};
    Outcome outcome;
    outcome.session = request.session;
    outcome.requestId = request.requestId;
    outcome.rows.resize(decision.members->size());  // Those that have joined give none.
    outcome.directIndex = directIndex;
    for (const flow::Request& giver : decision.requests)
      outcome.rows[static_cast<size_t>(giver.place)] =
          rowsOf(giver, request.place, decision.size());
    if (request.timed) addTimes(decision, true, nullptr, &outcome);
    deliver(std::move(outcome));
  }
  gather->requests = std::move(decision.requests);
}

void Engine::acceptRelease(Job* job, int rank, uint64_t requestId) {
  const auto it = job->gathers.find(gatherKey(rank, requestId));
  if (it == job->gathers.end()) return;  // The job failed meanwhile.
  const std::shared_ptr<Gather> gather = it->second.gather;
  job->gathers.erase(it);
  gather->holders.erase(rank);
  if (!gather->holders.empty()) return;
  for (const flow::Request& request : gather->requests) {
    Outcome outcome;
    outcome.session = request.session;
    outcome.requestId = request.requestId;
    outcome.released = true;
    deliver(std::move(outcome));
  }
}

void Engine::acceptFetch(submit::Session* session, Job* job, submit::Fetch fetch) {
  ++session->inFlight;
  Outcome outcome;
  outcome.session = session->id();
  outcome.requestId = fetch.requestId;
  const auto it = job->gathers.find(gatherKey(session->greeting.rank, fetch.gatherId));
  if (it == job->gathers.end()) {
    outcome.status =
        job->state == Job::State::kRunning
            ? Status(Code::kInvalidArgument, "no gather " + std::to_string(fetch.gatherId))
            : job->failure;
    return deliver(std::move(outcome));
  }
  if (session->fetches >= kMaxFetches) {
    outcome.status = Status(Code::kResourceExhausted,
                            std::to_string(kMaxFetches) + " copies of gathered rows at once");
    return deliver(std::move(outcome));
  }
  ++session->fetches;
  auto op = std::make_shared<FusedOp>();
  op->job = job->serial;
  op->kind = shm::OpKind::kBroadcast;  // Each slice is a copy from one place to another.
  op->reduce.dtype = shm::DType::kUint8;
  op->unwanted = session->gone;
  char* to = fetch.output.data();
  for (const flow::Request& request : it->second.gather->requests) {
    const shm::RowBlock rows = rowsOf(request, it->second.place, it->second.gather->size);
    const uint64_t bytes = static_cast<uint64_t>(rows.firstDim) * request.spec.rowElements() *
                           shm::dtypeSize(request.spec.dtype);
    if (bytes > fetch.room - op->bytes)
      return lobby_.expel(session->id(),
                          Status(Code::kProtocolError, "gathered rows leave the segment"));
    if (bytes > 0)
      op->slices.push_back(
          {{request.input.data() + (rows.offset - request.input.offset)}, {to + op->bytes}, bytes});
    op->bytes += bytes;
  }
  ++job->running;
  const auto done = [this, serial = job->serial, outcome, gather = it->second.gather,
                     output = fetch.output] {
    --jobs_.find(serial)->running;
    touched_.push_back(serial);
    if (submit::Session* asker = lobby_.find(outcome.session)) --asker->fetches;
    deliver(outcome);
  };
  plane_.run(op, [this, done, op] { post(done); });
}

}  // namespace rueda::engine
