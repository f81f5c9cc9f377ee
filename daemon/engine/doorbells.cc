// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/doorbells.h"

#include <algorithm>
#include <utility>

namespace rueda::engine {

using std::chrono::microseconds;
using submit::Session;

namespace {

// While a job has work on the data plane, what its clients submit is looked at in these steps. A
// wake-up for each took a client 7 us each where it shared its core with the engine.
constexpr microseconds kNap{30};

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
  return job != nullptr && job->state == Job::State::kRunning &&
         (!job->directWaits.empty() || job->table.wants(session.greeting.rank));
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

// The client may write on without waking the engine: its job has work, so that nothing is lost by
// looking a little later, and it is in the middle of submitting.
bool Doorbells::mayNap(const Session& session, flow::TimePoint now) const {
  const Job* job = jobs_.find(session.job);
  return job != nullptr && job->running > 0 && session.submittedAt == now;
}

std::optional<microseconds> Doorbells::announceSleep(flow::TimePoint now) {
  std::vector<flow::SessionId> still;
  bool hasMore = false;
  for (const flow::SessionId id : awake_) {
    Session* session = lobby_.find(id);
    if (session == nullptr) continue;
    const bool naps = mayNap(*session, now);
    if (!naps)
      session->control()->daemonAsleep.store(wants(*session) ? shm::kAsleepWanting : shm::kAsleep,
                                             std::memory_order_seq_cst);
    const bool isUnread = session->submissions().available() != 0;
    session->isAwake = naps || isUnread;
    if (session->isAwake) still.push_back(id);
    hasMore = hasMore || isUnread;
  }
  awake_ = std::move(still);
  if (awake_.empty()) return std::nullopt;
  return hasMore ? microseconds(0) : kNap;
}

}  // namespace rueda::engine
