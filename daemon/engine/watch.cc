// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/watch.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/observe/deadlock.h"

namespace rueda::engine {
namespace {

using flow::PendingView;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr size_t kMaxStallLines = 10;
constexpr size_t kMaxRanksDescribed = 4;

// Whether some of those that sleep on the set's board have not submitted what waits in its ring.
bool lacksWaiter(const negotiate::TensorTable& table, const std::vector<DirectWait>& waits) {
  const auto& entries = table.entries();
  return std::any_of(entries.begin(), entries.end(), [&](const auto& named) {
    return std::any_of(waits.begin(), waits.end(), [&](const DirectWait& wait) {
      const auto place = static_cast<size_t>(*table.placeOf(wait.rank));
      return !named.second.byPlace[place].has_value();
    });
  });
}

// Sends those that sleep on the board of `set` to the ring if they cannot all meet on the board.
void untangleSet(Job* job, flow::SetId set, const std::vector<DirectWait>& waits) {
  std::set<uint32_t> indices;
  for (const DirectWait& wait : waits) indices.insert(wait.index);
  const negotiate::TensorTable* table = job->sets.find(set);
  const bool isRemoved = table == nullptr;
  const bool meetsRing = isRemoved || !table->joined().empty() || lacksWaiter(*table, waits);
  if (indices.size() < 2 && !meetsRing) return;
  for (const uint32_t index : indices) {
    if (!job->boards.withdraw(set, index)) continue;
    for (DirectWait& wait : job->directWaits)
      if (wait.set == set && wait.index == index) wait.isWithdrawn = true;
  }
}

uint64_t ageMs(flow::TimePoint since, flow::TimePoint now) {
  return static_cast<uint64_t>(
      std::max<int64_t>(0, duration_cast<milliseconds>(now - since).count()));
}

// A look into /proc for each rank: once for all operations of a job.
std::vector<int> stoppedRanks(const Job& job) {
  std::vector<int> stopped;
  for (const int rank : job.ranksIn(Member::State::kRunning))
    if (membership::isStopped(job.members[static_cast<size_t>(rank)].pid)) stopped.push_back(rank);
  return stopped;
}

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

// A rank that has come and was then stopped in the middle of the sum is missing like one that has
// not come.
template <typename IsPresent>
void fillRanks(const std::vector<int>& ranks, const std::vector<int>& stopped,
               const IsPresent& isPresent, PendingView* view) {
  view->stopped = stopped;
  for (const int rank : ranks) (isPresent(rank) ? view->present : view->missing).push_back(rank);
  if (!view->missing.empty()) return;
  std::copy_if(stopped.begin(), stopped.end(), std::back_inserter(view->missing),
               [&ranks](int rank) { return contains(ranks, rank); });
  view->present.erase(std::remove_if(view->present.begin(), view->present.end(),
                                     [&stopped](int rank) { return contains(stopped, rank); }),
                      view->present.end());
}

// When the oldest operation that waits in the job began to, or `now`.
flow::TimePoint oldestSince(const Job& job, flow::TimePoint now) {
  flow::TimePoint oldest = now;
  for (const flow::SetId set : job.sets.active()) {
    const negotiate::TensorTable& table = *job.sets.find(set);
    for (const auto& [name, entry] : table.entries()) oldest = std::min(oldest, entry.since);
    if (!table.joined().empty()) oldest = std::min(oldest, table.joined().front().arrived);
  }
  for (const DirectWait& wait : job.directWaits) oldest = std::min(oldest, wait.since);
  return oldest;
}

PendingView viewOf(const std::string& name, flow::SetId set, const flow::TensorSpec& spec,
                   uint64_t age) {
  PendingView view;
  view.name = name;
  view.set = set;
  view.kind = shm::opKindName(spec.kind);
  view.dtype = shm::dtypeName(spec.dtype);
  view.shape = flow::shapeText(spec.shape);
  view.ageMs = age;
  return view;
}

// What waits in one process set.
void addPending(flow::SetId set, const negotiate::TensorTable& table,
                const std::vector<int>& stopped, flow::TimePoint now,
                std::vector<PendingView>* pending) {
  for (const auto& [name, entry] : table.entries()) {
    PendingView view = viewOf(name, set, entry.first().spec, ageMs(entry.since, now));
    const auto isPresent = [&table, &byPlace = entry.byPlace](int rank) {
      const int place = *table.placeOf(rank);
      return byPlace[static_cast<size_t>(place)].has_value() || table.hasJoined(place);
    };
    fillRanks(table.members(), stopped, isPresent, &view);
    pending->push_back(std::move(view));
  }
  if (table.joined().empty()) return;
  const flow::Request& first = table.joined().front();
  PendingView view = viewOf(first.name, set, first.spec, ageMs(first.arrived, now));
  view.mayWait = true;
  const auto hasJoined = [&table](int rank) { return table.hasJoined(*table.placeOf(rank)); };
  fillRanks(table.members(), stopped, hasJoined, &view);
  pending->push_back(std::move(view));
}

// Whose threads are not all known to sleep, and so may submit what is missing.
struct Doubt {
  std::vector<int> haveOthers;
  std::vector<int> mayHaveOthers;  // The kernel does not tell.

  bool any() const { return !haveOthers.empty() || !mayHaveOthers.empty(); }
};

Doubt findDoubt(const Job& job, const std::vector<size_t>& asleep, const ThreadsOf& threadsOf) {
  Doubt doubt;
  for (size_t rank = 0; rank < asleep.size(); ++rank) {
    const uint64_t threads = threadsOf(job.members[rank].pid);
    if (threads == 0)
      doubt.mayHaveOthers.push_back(static_cast<int>(rank));
    else if (threads > asleep[rank])
      doubt.haveOthers.push_back(static_cast<int>(rank));
  }
  return doubt;
}

std::string deadlockLine(const Job& job, const std::string& who, const Doubt& doubt) {
  std::string line = "job '" + base::printable(job.id) + "' " +
                     (doubt.any() ? "may be deadlocked: " : "is deadlocked: ") + who;
  if (!doubt.haveOthers.empty())
    line += "; ranks " + observe::rankList(doubt.haveOthers) +
            " have other threads, which may submit what is missing";
  if (!doubt.mayHaveOthers.empty())
    line += "; whether ranks " + observe::rankList(doubt.mayHaveOthers) +
            " have other threads is not known";
  return line;
}

}  // namespace

void untangle(Job* job) {
  if (job->directWaits.empty()) return;
  std::map<flow::SetId, std::vector<DirectWait>> bySet;
  for (const DirectWait& wait : job->directWaits)
    if (!job->boards.hasAllPosts(wait.set, wait.index)) bySet[wait.set].push_back(wait);
  for (const auto& [set, waits] : bySet) untangleSet(job, set, waits);
}

void reportDeadlock(Job* job, bool atTick, const ThreadsOf& threadsOf) {
  if (atTick) job->hadOthers = false;
  // What is complete ends by itself.
  const bool goesOn = job->running > 0 || !job->runnable.empty() || job->sets.hasReady();
  const std::vector<size_t> asleep = goesOn ? std::vector<size_t>() : job->countSleepers();
  // The usual case, cheaply: no thread of some rank is known to sleep.
  if (goesOn || std::find(asleep.begin(), asleep.end(), size_t{0}) != asleep.end()) {
    if (atTick) job->seenDeadlock = {};
    return job->reportedDeadlock.clear();
  }
  Deadlock now{observe::findDeadlock(job->sleepers()).value_or(""),
               job->opsCompleted + job->boards.begunByAll()};
  const bool isSettled = atTick && now == job->seenDeadlock;
  if (atTick) job->seenDeadlock = now;
  if ((job->hasThreads || job->hadOthers) && !isSettled) return;
  // Waiters on their way from the board to the ring look awake for a moment: not a new deadlock.
  const bool isLogged = now == job->loggedDeadlock;
  if (now.text.empty() || (isLogged && job->isLoggedCertain)) {
    job->reportedDeadlock = now.text;
    return;
  }
  const Doubt doubt = findDoubt(*job, asleep, threadsOf);
  job->hadOthers = doubt.any();
  if (job->hadOthers && !isSettled) return;
  job->reportedDeadlock = now.text;
  if (job->hadOthers && isLogged) return;
  base::logWarning(deadlockLine(*job, now.text, doubt));
  job->isLoggedCertain = !job->hadOthers;
  job->loggedDeadlock = std::move(now);
}

std::vector<PendingView> pendingOf(const Job& job, flow::TimePoint now) {
  std::vector<PendingView> pending;
  if (job.sets.active().empty() && job.directWaits.empty()) return pending;
  const std::vector<int> stopped = stoppedRanks(job);
  for (const flow::SetId set : job.sets.active())
    addPending(set, *job.sets.find(set), stopped, now, &pending);
  std::set<std::tuple<flow::SetId, uint32_t, std::string>> seen;
  for (const DirectWait& wait : job.directWaits) {
    if (!seen.insert({wait.set, wait.index, wait.name}).second) continue;
    PendingView view = viewOf(wait.name, wait.set, wait.spec, ageMs(wait.since, now));
    const auto hasPosted = [&](int rank) {
      return job.boards.hasPosted(wait.set, rank, wait.index);
    };
    fillRanks(job.boards.seats().ranksOf(wait.set), stopped, hasPosted, &view);
    pending.push_back(std::move(view));
  }
  std::sort(pending.begin(), pending.end(),
            [](const PendingView& a, const PendingView& b) { return a.ageMs > b.ageMs; });
  return pending;
}

bool hasOlderThan(const Job& job, flow::TimePoint now, milliseconds age) {
  return now - oldestSince(job, now) >= age;
}

bool isNoFault(const PendingView& pending) {
  return pending.mayWait &&
         std::none_of(pending.missing.begin(), pending.missing.end(),
                      [&pending](int rank) { return contains(pending.stopped, rank); });
}

std::string describePending(const Job& job, const PendingView& pending) {
  const std::vector<int>& guilty = pending.missing;
  std::string text = pending.kind + " '" + base::printable(pending.name) + "'" +
                     (pending.set == 0 ? "" : " of process set " + std::to_string(pending.set)) +
                     " waits since " + std::to_string(pending.ageMs) + " ms for ranks " +
                     observe::rankList(guilty);
  for (size_t i = 0; i < std::min(guilty.size(), kMaxRanksDescribed); ++i) {
    const bool isStopped = contains(pending.stopped, guilty[i]);
    text += std::string(i == 0 ? ": " : ", ") + job.describe(guilty[i]) +
            (isStopped ? " is stopped" : "");
  }
  return text + "; present are ranks " + observe::rankList(pending.present);
}

void reportStalls(Job* job, flow::TimePoint now, milliseconds warnAfter) {
  const auto earlier = std::exchange(job->nextStallLine, {});
  if (!hasOlderThan(*job, now, warnAfter)) return;
  size_t lines = 0;
  size_t more = 0;
  for (const PendingView& pending : pendingOf(*job, now)) {
    if (pending.ageMs < static_cast<uint64_t>(warnAfter.count()))
      break;                                                      // Sorted: the rest is younger.
    if (pending.missing.empty() || isNoFault(pending)) continue;  // All are at work on it.
    const std::string key = pending.name + '\0' + std::to_string(pending.set);
    const auto known = earlier.find(key);
    flow::TimePoint& next = job->nextStallLine[key];
    next = known == earlier.end() ? now : known->second;
    if (now < next) continue;
    next = now + milliseconds(std::max<uint64_t>(pending.ageMs, 1000));
    if (++lines > kMaxStallLines)
      ++more;
    else
      base::logWarning("job '" + base::printable(job->id) + "': " + describePending(*job, pending));
  }
  if (more > 0)
    base::logWarning("job '" + base::printable(job->id) + "': and " + std::to_string(more) +
                     " more operations wait");
}

}  // namespace rueda::engine
