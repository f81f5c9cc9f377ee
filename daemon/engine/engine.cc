// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/engine.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/engine/watch.h"
#include "daemon/fuse/planner.h"

namespace rueda::engine {

using flow::Decision;
using flow::FusedOp;
using flow::Outcome;
using flow::Request;
using shm::Code;
using shm::OpKind;
using shm::Status;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using submit::Session;

namespace {

constexpr size_t kMailboxCapacity = 1 << 20;  // More than all clients' operations in flight.
constexpr int kMaxItemsPerTurn = 64;  // Of one client, so that a flood cannot starve others.

bool mayBeOnBoard(const Job& job, flow::SetId set, int rank) {
  return job.state == Job::State::kRunning && job.boards.seats().placeOf(set, rank);
}

template <typename Matches>
void removeDirectWaits(Job* job, const Matches& matches) {
  auto& waits = job->directWaits;
  waits.erase(std::remove_if(waits.begin(), waits.end(), matches), waits.end());
}

}  // namespace

Engine::Engine(const EngineOptions& options, shm::Fd listener, execute::WorkerPool& pool)
    : options_(options),
      pool_(pool),
      plane_(pool),
      mailbox_(kMailboxCapacity),
      quota_(options.quota),
      jobs_(quota_, memoryDisposer_,
            [this](flow::SessionId id, const shm::Notice& notice) { lobby_.notify(id, notice); }),
      lobby_(loop_, jobs_, quota_, descriptorDisposer_, options.lobby, std::move(listener)),
      doorbells_(lobby_, jobs_),
      startedAt_(steady_clock::now()),
      now_(startedAt_) {
  RUEDA_CHECK(loop_.watch(mailbox_.fd(), {kMailbox, 0}).isOk());
  if (options_.lifelineFd >= 0 && loop_.watch(options_.lifelineFd, {kLifeline, 0}).isOk())
    lifelineClosed_ = false;
}

Engine::~Engine() = default;

void Engine::run() {
  thread_ = std::this_thread::get_id();
  while (!ended_) turn();
}

void Engine::turn() {
  const auto ready = loop_.wait(sleepLimit());
  now_ = steady_clock::now();
  for (const base::Ready& one : ready) handleReady(one);
  drainSubmissions();
  handleLobbyEvents();
  if (now_ >= nextTick_) handleTick();
  touchDueCycles();
  while (!touched_.empty()) advanceTouched();  // Again where an operation has run at once.
  deliverAll();
  for (auto& answer : std::exchange(asked_, {})) answer->set_value(view(now_));
  ended_ = ended_ || shouldEnd();
}

void Engine::advanceTouched() {
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  for (const flow::JobSerial serial : std::exchange(touched_, {})) {
    Job* job = jobs_.find(serial);
    if (job == nullptr) continue;
    negotiateAndDispatch(job);
    untangle(job);
    reportDeadlock(job, false);
    doorbells_.tellWanted(*job);
    jobs_.removeIfEmpty(serial);
  }
}

// Jobs whose operations have waited for the end of a cycle.
void Engine::touchDueCycles() {
  for (const auto& [serial, job] : jobs_.all())
    if (!job->runnable.empty() && now_ >= job->cycleEnds) touched_.push_back(serial);
}

// How long epoll may wait.
std::optional<microseconds> Engine::sleepLimit() {
  const auto nap = doorbells_.announceSleep(now_);
  if (lobby_.hasEvents()) return microseconds(0);
  if (nap) return nap;
  std::optional<flow::TimePoint> wakeAt;  // The end of a cycle that operations wait for.
  for (const auto& [serial, job] : jobs_.all())
    if (!job->runnable.empty() && !job->hasEnoughReducing())
      wakeAt = std::min(wakeAt.value_or(job->cycleEnds), job->cycleEnds);
  const bool idle = std::all_of(jobs_.all().begin(), jobs_.all().end(), [](const auto& entry) {
    const Job& job = *entry.second;
    return job.state != Job::State::kForming && job.sets.active().empty() &&
           job.directWaits.empty();
  });
  const bool mayEndAlone = options_.endWithLastClient && !hadClient_;
  const bool needsTick = !idle || stopBy_ || lobby_.needsTick() || mayEndAlone;
  if (!needsTick && !wakeAt) return std::nullopt;
  const auto now = steady_clock::now();
  const auto until = [now](flow::TimePoint time) {
    return std::chrono::duration_cast<microseconds>(time - now);
  };
  microseconds limit = wakeAt ? std::max(microseconds(0), until(*wakeAt) + microseconds(1)) : kTick;
  if (needsTick)
    limit = std::min<microseconds>(
        limit,
        std::clamp<microseconds>(until(nextTick_) + milliseconds(1), milliseconds(1), kTick));
  return limit;
}

void Engine::handleReady(const base::Ready& ready) {
  switch (ready.tag.kind) {
    case kDoorbell:
      // Never read: the client shares the file, could make it blocking and empty it first.
      doorbells_.wake(ready.tag.id);
      return;
    case kLifeline:
      loop_.forget(options_.lifelineFd);
      lifelineClosed_ = true;
      return;
    case kMailbox:
      for (auto& command : mailbox_.takeAll()) command();
      return;
    default:
      lobby_.onReady(ready, now_);
  }
}

void Engine::drainSubmissions() {
  for (const flow::SessionId id : doorbells_.takeTurn())
    if (Session* session = lobby_.find(id)) drainSession(session);
}

void Engine::drainSession(Session* session) {
  const flow::SessionId id = session->id();
  Job* job = jobs_.find(session->job);
  const int rank = session->greeting.rank;
  const auto lookup = [job, rank](uint32_t segment) {
    const auto it = job->segments.find(segment);
    const bool isOwn = it != job->segments.end() && it->second->rank == rank;
    return isOwn ? std::shared_ptr<const flow::Segment>(it->second) : nullptr;
  };
  const auto placeIn = [job, rank](flow::SetId set) -> std::optional<submit::Place> {
    const negotiate::TensorTable* table = job->sets.find(set);
    const auto place = table == nullptr ? std::nullopt : table->placeOf(rank);
    if (!place) return std::nullopt;
    return submit::Place{*place, static_cast<int>(table->members().size())};
  };
  const submit::Origin origin{lookup, rank, placeIn};
  for (int i = 0; i < kMaxItemsPerTurn; ++i) {
    const int64_t available = session->submissions().available();
    if (available == 0) return;
    if (available < 0)
      return lobby_.expel(id,
                          Status(Code::kProtocolError, "impossible index in the submission ring"));
    uint32_t slots = 0;
    auto item = submit::parseSubmission(session->submissions(), available, origin, &slots);
    if (!item.isOk()) return lobby_.expel(id, item.status());
    session->submissions().consume(slots);
    touched_.push_back(job->serial);
    acceptItem(session, job, std::move(item).value());  // May end the session.
    if (lobby_.find(id) == nullptr) return;
  }
}

void Engine::acceptItem(Session* session, Job* job, submit::Item item) {
  if (auto* request = std::get_if<Request>(&item))
    return acceptRequest(session, job, std::move(*request));
  if (auto* note = std::get_if<submit::WaitNote>(&item)) return acceptNote(session, job, *note);
  if (auto* release = std::get_if<submit::Release>(&item))
    return acceptRelease(job, session->greeting.rank, release->requestId);
  if (const auto* leave = std::get_if<submit::Leave>(&item))
    return job->leaveBoard(leave->set, session->greeting.rank);
  if (auto* fetch = std::get_if<submit::Fetch>(&item))
    return acceptFetch(session, job, std::move(*fetch));
  const auto& invalid = std::get<submit::Invalid>(item);
  ++session->inFlight;
  Outcome outcome;
  outcome.session = session->id();
  outcome.requestId = invalid.requestId;
  outcome.status = invalid.status;
  deliver(std::move(outcome));
}

void Engine::acceptRequest(Session* session, Job* job, Request request) {
  request.session = session->id();
  request.rank = session->greeting.rank;
  request.arrived = now_;
  job->hasThreads |= request.threads;
  if (!request.blocking) Doorbells::noteStart(session, request.among, now_);
  ++session->submitted;
  if (++session->inFlight > shm::kMaxInFlight)
    return lobby_.expel(session->id(), Status(Code::kResourceExhausted,
                                              "more than " + std::to_string(shm::kMaxInFlight) +
                                                  " operations in flight"));
  if (job->state == Job::State::kForming)
    return lobby_.expel(session->id(),
                        Status(Code::kProtocolError, "submission before the job is complete"));
  if (request.group != 0) request.group |= static_cast<uint64_t>(request.rank + 1) << 40;
  observe::WaitedFor operation;
  if (request.blocking)
    operation = {describeOperation(request.spec.kind, request.name, request.set),
                 job->sets.find(request.set)->members().size()};
  Outcome outcome;
  outcome.session = request.session;
  outcome.requestId = request.requestId;
  outcome.status = job->state == Job::State::kRunning ? job->sets.add(&request) : job->failure;
  if (!outcome.status.isOk()) return deliver(std::move(outcome));
  if (operation.ranks > 0)
    job->requestWaits[static_cast<size_t>(session->greeting.rank)][outcome.requestId] = operation;
}

void Engine::acceptNote(Session* session, Job* job, const submit::WaitNote& note) {
  const int rank = session->greeting.rank;
  job->hasThreads |= note.threads;
  auto& requests = job->requestWaits[static_cast<size_t>(rank)];
  constexpr size_t kMaxSleepers = 4096;  // Threads of one client that sleep at once.
  switch (note.kind) {
    case submit::WaitNote::Kind::kDirect:
      if (!mayBeOnBoard(*job, note.set, rank)) break;
      // A rank is in one direct operation of a set at a time: what it said before is over.
      removeDirectWaits(
          job, [&](const DirectWait& wait) { return wait.rank == rank && wait.set == note.set; });
      job->directWaits.push_back(
          {rank, note.requestId, note.set, note.directIndex, note.name, note.spec, now_});
      break;
    case submit::WaitNote::Kind::kRequest: {
      const negotiate::TensorTable* table = job->sets.find(note.set);
      const auto place = table == nullptr ? std::nullopt : table->placeOf(rank);
      if (!place || table->entries().count(note.name) == 0) break;  // Is complete by now.
      const auto& mine = table->entries().at(note.name).byPlace[static_cast<size_t>(*place)];
      if (mine && mine->requestId == note.requestId && requests.size() < kMaxSleepers)
        requests[note.requestId] = {describeOperation(mine->spec.kind, note.name, note.set),
                                    table->members().size()};
      break;
    }
    case submit::WaitNote::Kind::kEnd:
      requests.erase(note.requestId);
      removeDirectWaits(job, [&](const DirectWait& wait) {
        return wait.rank == rank && wait.noteId == note.requestId;
      });
      break;
  }
}

void Engine::negotiateAndDispatch(Job* job) {
  for (Decision& decision : job->sets.takeReady()) {
    decision.decidedAt = now_;
    const OpKind kind = decision.spec().kind;
    if (!decision.error.isOk())
      endDecision(job, decision, decision.error);
    else if (shm::isAgreement(kind))
      finishAgreement(job, decision);
    else if (shm::gathers(kind))
      finishGather(job, std::move(decision));
    else
      job->runnable.push_back(std::move(decision));
  }
  if (job->runnable.empty() || job->hasEnoughReducing() || now_ < job->cycleEnds) return;
  job->cycleEnds = now_ + job->settings.cycle;
  for (FusedOp& op : fuse::plan(std::exchange(job->runnable, {}), job->settings.fusion))
    dispatch(job, std::move(op));
}

void Engine::dispatch(Job* job, FusedOp op) {
  ++job->running;
  ++job->reducing;
  op.cycleAt = now_;
  op.startedAt = steady_clock::now();
  auto shared = std::make_shared<const FusedOp>(std::move(op));
  plane_.run(shared, [this, shared] {
    post([this, shared, at = steady_clock::now()] { onExecuted(shared, at); });
  });
}

void Engine::onExecuted(const std::shared_ptr<const FusedOp>& op, flow::TimePoint at) {
  Job* job = jobs_.find(op->job);  // Kept while `running` counts this operation.
  --job->running;
  --job->reducing;
  job->bytesReduced += op->bytes;
  const Span span{op->cycleAt, op->startedAt, at};
  for (const Decision& decision : op->decisions) endDecision(job, decision, Status::ok(), 0, &span);
  touched_.push_back(op->job);
}

// Where the ranks of a set go on together that all came from its direct path, at whatever index.
std::optional<uint32_t> Engine::resumeIndex(const Decision& decision) {
  const bool allFallback =
      decision.joined.empty() && std::all_of(decision.requests.begin(), decision.requests.end(),
                                             [](const Request& r) { return r.fallback; });
  if (!allFallback) return std::nullopt;
  uint32_t last = decision.requests.front().directIndex;
  for (const Request& request : decision.requests)
    if (shm::indexAhead(request.directIndex, last) > 0) last = request.directIndex;
  return last + 1;
}

void Engine::endDecision(Job* job, const Decision& decision, const Status& status, int64_t value,
                         const Span* span) {
  const std::optional<uint32_t> directIndex = resumeIndex(decision);
  status.isOk() ? ++job->opsCompleted : ++job->opsFailed;
  for (const Request& request : decision.requests) {
    job->requestWaits[static_cast<size_t>(request.rank)].erase(request.requestId);
    Outcome outcome;
    outcome.session = request.session;
    outcome.requestId = request.requestId;
    outcome.status = status;
    outcome.directIndex = directIndex;
    outcome.value = value;
    if (request.timed) addTimes(decision, status.isOk(), span, &outcome);
    deliver(std::move(outcome));
  }
}

void Engine::deliver(Outcome outcome) {
  if (Session* session = lobby_.find(outcome.session); session != nullptr && !outcome.released) {
    if (session->inFlight > 0) --session->inFlight;
    ++session->completed;
  }
  delivery_.deliver(outcome);
}

void Engine::deliverAll() {
  for (const auto& [id, reason] : delivery_.flush()) lobby_.expel(id, reason);
}

void Engine::post(std::function<void()> command) {
  if (std::this_thread::get_id() == thread_.load()) return command();
  RUEDA_CHECK(mailbox_.post(std::move(command)));
}

}  // namespace rueda::engine
