// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/doorbells.h"

#include <algorithm>
#include <utility>

namespace rueda::engine {

using std::chrono::microseconds;
using submit::Session;

namespace {

// What clients start in quick succession is looked at in these steps. A wake-up for each took a
// client 7 us each where it shared its core with the engine, and each operation went alone.
constexpr microseconds kNap{30};
// Where nothing more fits on the data plane, nothing is lost until the end of a reduction is heard
// of; a bound for what must be heard all the same.
constexpr microseconds kLongNap{1000};

}  // namespace

void Doorbells::wake(flow::SessionId id) {
  Session* session = lobby_.find(id);
  if (session == nullptr || session->state != Session::State::kJoined) return;
  // relaxed: a client that still sees it asleep writes its doorbell for nothing.
  session->control()->daemonAsleep.store(shm::kAwake, std::memory_order_relaxed);
  if (!std::exchange(session->isAwake, true)) awake_.push_back(id);
}

void Doorbells::wakeAll() {
  for (const auto& [id, session] : lobby_.sessions()) wake(id);
}

std::vector<flow::SessionId> Doorbells::takeTurn() {
  std::vector<flow::JobSerial> jobs;
  for (const flow::SessionId id : awake_)
    if (const Session* session = lobby_.find(id)) jobs.push_back(session->job);
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  for (const flow::JobSerial serial : jobs) {
    const Job* job = jobs_.find(serial);
    if (job == nullptr) continue;
    for (const Member& member : job->members) {
      if (member.state != Member::State::kRunning) continue;
      Session* session = lobby_.find(member.session);
      if (session != nullptr && session->submissions().available() != 0) wake(member.session);
    }
  }
  return awake_;
}

// Whether some operation waits for the session's rank.
bool Doorbells::wants(const Session& session) const {
  const Job* job = jobs_.find(session.job);
  return job != nullptr && job->state == Job::State::kRunning && job->wants(session.greeting.rank);
}

void Doorbells::tellWanted(const Job& job) {
  for (const Member& member : job.members) {
    Session* session =
        member.state == Member::State::kRunning ? lobby_.find(member.session) : nullptr;
    if (session == nullptr || session->isAwake || !wants(*session)) continue;
    uint32_t told = shm::kAsleep;
    session->control()->daemonAsleep.compare_exchange_strong(told, shm::kAsleepWanting,
                                                             std::memory_order_seq_cst);
    if (session->submissions().available() != 0) wake(member.session);
  }
}

void Doorbells::noteStart(Session* session, bool among, flow::TimePoint now) {
  session->startsOften = among && now - session->startedAt <= kNap;
  session->startedAt = now;
}

// It is in the middle of starting several, as far as one can tell.
microseconds Doorbells::nap(const Session& session, flow::TimePoint now) const {
  const Job* job = jobs_.find(session.job);
  if (job == nullptr || session.startedAt != now) return microseconds(0);
  if (job->hasEnoughReducing()) return kLongNap;
  return job->running > 0 || session.startsOften ? kNap : microseconds(0);
}

std::optional<microseconds> Doorbells::announceSleep(flow::TimePoint now) {
  std::vector<flow::SessionId> still;
  microseconds limit = kLongNap;
  for (const flow::SessionId id : awake_) {
    Session* session = lobby_.find(id);
    if (session == nullptr) continue;
    const microseconds nap = this->nap(*session, now);
    const uint32_t asleep = wants(*session) ? shm::kAsleepWanting : shm::kAsleep;
    session->control()->daemonAsleep.store(nap.count() > 0 ? shm::kNapping : asleep,
                                           std::memory_order_seq_cst);
    const bool isUnread = session->submissions().available() != 0;
    session->isAwake = nap.count() > 0 || isUnread;
    if (!session->isAwake) continue;
    still.push_back(id);
    limit = std::min(limit, isUnread ? microseconds(0) : nap);
  }
  awake_ = std::move(still);
  if (awake_.empty()) return std::nullopt;
  return limit;
}

}  // namespace rueda::engine
