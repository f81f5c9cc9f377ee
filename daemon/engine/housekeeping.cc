// SPDX-License-Identifier: Apache-2.0
// The engine between collectives: clients that come and go, time, status and the end.
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "daemon/engine/engine.h"
#include "daemon/engine/watch.h"
#include "shm/version.h"

namespace rueda::engine {

using flow::Outcome;
using shm::Code;
using shm::Status;
using std::chrono::milliseconds;

namespace {

constexpr std::chrono::seconds kFirstClientLimit{
    30};  // A private daemon that nobody comes to ends.

const char* jobStateName(Job::State state) {
  switch (state) {
    case Job::State::kForming:
      return "forming";
    case Job::State::kRunning:
      return "running";
    case Job::State::kFailed:
      return "failed";
    case Job::State::kEnded:
      return "ended";
  }
  return "?";
}

const char* memberStateName(Member::State state) {
  switch (state) {
    case Member::State::kAbsent:
      return "absent";
    case Member::State::kRunning:
      return "running";
    case Member::State::kLeft:
      return "left";
    case Member::State::kLost:
      return "lost";
  }
  return "?";
}

uint64_t residentBytes() {
  uint64_t pages = 0;
  uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

uint64_t countEntries(const char* path) {
  DIR* directory = ::opendir(path);
  if (directory == nullptr) return 0;
  uint64_t count = 0;
  while (const dirent* entry = ::readdir(directory)) count += entry->d_name[0] != '.' ? 1 : 0;
  ::closedir(directory);
  return count;
}

}  // namespace

void Engine::handleLobbyEvents() {
  for (const Lobby::Event& event : lobby_.takeEvents()) {
    Job* job = jobs_.find(event.job);
    touched_.push_back(event.job);
    std::vector<Outcome> outcomes;
    switch (event.kind) {
      case Lobby::Event::Kind::kJoined:
        hadClient_ = true;
        if (submit::Session* session = lobby_.find(event.session)) {
          delivery_.addSession(session->id(), session->completionSlots(), session->control());
          if (event.rank == 0) configure(job, session->greeting.knobs);
        }
        break;
      case Lobby::Event::Kind::kSegmentReady:
        shareSegment(job, event.segment);
        break;
      case Lobby::Event::Kind::kLeft:
        delivery_.forget(event.session);
        jobs_.leave(job, event.rank, Member::State::kLeft, "left");
        if (job->state == Job::State::kRunning)
          jobs_.finish(job, Job::State::kEnded, event.rank,
                       Status(Code::kShutDown, "the job has been shut down: " +
                                                   job->describe(event.rank) + " left it"),
                       &outcomes);
        break;
      case Lobby::Event::Kind::kLost:
        loseRank(job, event, &outcomes);
        break;
    }
    for (Outcome& outcome : outcomes) deliver(std::move(outcome));
  }
}

void Engine::configure(Job* job, const shm::Knobs& knobs) {
  std::string note;
  job->settings = withKnobs(options_.job, knobs, &note);
  if (!note.empty()) base::logWarning("job '" + base::printable(job->id) + "': " + note);
}

void Engine::loseRank(Job* job, const Lobby::Event& event, std::vector<Outcome>* outcomes) {
  delivery_.forget(event.session);
  jobs_.leave(job, event.rank, Member::State::kLost, event.cause);
  ++ranksLost_;
  const std::string text = job->describe(event.rank) + ", which " + event.cause;
  base::logWarning("job '" + base::printable(job->id) + "' lost " + text);
  if (job->state == Job::State::kRunning)
    jobs_.finish(job, Job::State::kFailed, event.rank, Status(Code::kRankLost, "lost " + text),
                 outcomes);
}

void Engine::shareSegment(Job* job, const std::shared_ptr<flow::Segment>& segment) {
  auto message = shm::makeMessage<shm::SegmentMessage>(shm::MessageType::kPeerSegment);
  message.segment = segment->id;
  message.rank = segment->rank;
  message.bytes = segment->bytes;
  for (int rank = 0; rank < job->size && !job->isolated; ++rank) {
    const Member& member = job->members[static_cast<size_t>(rank)];
    submit::Session* session =
        member.state == Member::State::kRunning ? lobby_.find(member.session) : nullptr;
    if (rank == segment->rank || session == nullptr) continue;
    const Status sent = session->send(message, segment);
    if (!sent.isOk()) lobby_.expel(session->id(), sent);
  }
  ++job->running;  // The workers touch its pages, so that no sum faults.
  execute::WorkerPool::Work work;
  work.job = job->serial;
  work.pieces = 1;
  work.runPiece = [segment](size_t) { segment->mapping.touch(); };
  work.done = [this, serial = job->serial] {
    post([this, serial] {
      --jobs_.find(serial)->running;
      touched_.push_back(serial);
    });
  };
  pool_.submit(std::move(work));
}

void Engine::handleTick() {
  nextTick_ = now_ + kTick;
  lobby_.tick(now_);
  for (auto& [serial, job] : jobs_.all()) {
    if (job->state != Job::State::kRunning) continue;
    if (job->sets.releaseGroups(now_ - kTick)) touched_.push_back(serial);
    untangle(job.get());
    reportDeadlock(job.get(), true);
    const milliseconds warn = job->settings.stallWarn;
    const milliseconds shutdown = job->settings.stallShutdown;
    if (warn.count() > 0) reportStalls(job.get(), now_, warn);
    if (shutdown.count() == 0 || !hasOlderThan(*job, now_, shutdown)) continue;
    for (const flow::PendingView& pending : pendingOf(*job, now_)) {
      if (milliseconds(pending.ageMs) < shutdown) break;
      if (pending.mayWait) continue;  // Nor when a rank was stopped for a moment.
      std::vector<Outcome> outcomes;
      jobs_.finish(job.get(), Job::State::kFailed, -1,
                   Status(Code::kStalled, describePending(*job, pending)), &outcomes);
      for (Outcome& outcome : outcomes) deliver(std::move(outcome));
    }
  }
  if (stopBy_ && now_ >= *stopBy_) {
    endAllJobs("the daemon is stopping");
    ended_ = true;
  }
}

bool Engine::shouldEnd() const {
  if (stopBy_) return lobby_.sessionCount() == 0;
  if (!options_.endWithLastClient || lobby_.sessionCount() > 0 || !lifelineClosed_) return false;
  return hadClient_ || options_.lifelineFd >= 0 || now_ - startedAt_ > kFirstClientLimit;
}

void Engine::endAllJobs(const std::string& why) {
  for (auto& [serial, job] : jobs_.all()) {
    std::vector<Outcome> outcomes;
    jobs_.finish(job.get(), Job::State::kEnded, -1, Status(Code::kShutDown, why), &outcomes);
    for (Outcome& outcome : outcomes) deliver(std::move(outcome));
  }
  deliverAll();
}

void Engine::requestStop(std::chrono::seconds drain) {
  post([this, drain] {
    // A second request ends the patience.
    const auto limit = stopBy_ ? std::chrono::seconds(0) : drain;
    lobby_.startDraining();
    stopBy_ = now_ + limit;
    nextTick_ = now_;
  });
}

shm::Result<flow::StateView> Engine::snapshot(milliseconds timeout) {
  auto promise = std::make_shared<std::promise<flow::StateView>>();
  auto answer = promise->get_future();
  post([this, promise] {
    doorbells_.wakeAll();
    asked_.push_back(promise);
  });
  if (answer.wait_for(timeout) != std::future_status::ready)
    return Status(Code::kDeadlineExceeded,
                  "the engine did not answer within " + std::to_string(timeout.count()) + " ms");
  return answer.get();
}

flow::StateView Engine::view(flow::TimePoint now) const {
  flow::StateView state;
  state.version = shm::kVersion;
  state.socket = options_.socket;
  state.pid = ::getpid();
  state.uptimeMs =
      static_cast<uint64_t>(std::chrono::duration_cast<milliseconds>(now - startedAt_).count());
  state.draining = lobby_.draining();
  state.residentBytes = residentBytes();
  state.sharedBytes = quota_.totalBytes();
  state.openFds = countEntries("/proc/self/fd");
  state.threads = countEntries("/proc/self/task");
  state.sessionsAccepted = lobby_.accepted;
  state.sessionsRejected = lobby_.rejected;
  state.ranksLost = ranksLost_;
  for (const auto& [serial, job] : jobs_.all()) state.jobs.push_back(viewOf(*job, now));
  state.health = {{"ipc", !lobby_.draining(), lobby_.draining() ? "draining" : ""},
                  {"engine", true, ""},
                  {"workers", true, ""},
                  {"memory", true, ""}};
  return state;
}

flow::JobView Engine::viewOf(const Job& job, flow::TimePoint now) const {
  flow::JobView out;
  out.id = job.id;
  out.uid = job.uid;
  out.size = job.size;
  out.generation = job.serial;
  out.state = jobStateName(job.state);
  out.failure = job.failure.message();
  out.deadlocked = !job.reportedDeadlock.empty();
  out.pending = pendingOf(job, now);
  out.opsCompleted = job.opsCompleted;
  out.opsFailed = job.opsFailed;
  out.opsDirect = job.boards.begunByAll();
  out.bytesReduced = job.bytesReduced;
  for (int rank = 0; rank < job.size; ++rank) {
    const Member& member = job.members[static_cast<size_t>(rank)];
    const auto session = lobby_.sessions().find(member.session);
    const bool alive =
        member.state == Member::State::kRunning && session != lobby_.sessions().end();
    out.ranks.push_back(
        {rank, member.pid, member.host, member.arenaBytes,
         alive ? session->second->submitted : member.submitted, job.boards.begunBy(rank),
         alive ? session->second->completed : member.completed, memberStateName(member.state)});
  }
  return out;
}

}  // namespace rueda::engine
