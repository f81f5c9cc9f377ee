// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/watch.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/membership/exit_cause.h"
#include "daemon/observe/deadlock.h"

namespace rueda::engine {
namespace {

using flow::PendingView;
using std::chrono::duration_cast;
using std::chrono::milliseconds;

constexpr size_t kMaxStallLines = 10;
constexpr size_t kMaxRanksDescribed = 4;

bool lacksWaiter(const negotiate::TensorTable::Entry& entry, const std::vector<DirectWait>& waits) {
  return std::any_of(waits.begin(), waits.end(), [&entry](const DirectWait& wait) {
    return !entry.byRank[static_cast<size_t>(wait.rank)].has_value();
  });
}

uint64_t ageMs(flow::TimePoint since, flow::TimePoint now) {
  return static_cast<uint64_t>(std::max<int64_t>(0, duration_cast<milliseconds>(now - since).count()));
}

void fillRanks(const Job& job, const std::set<int>& present, PendingView* view) {
  for (int rank = 0; rank < job.size; ++rank) {
    (present.count(rank) > 0 ? view->present : view->missing).push_back(rank);
    if (membership::isStopped(job.members[static_cast<size_t>(rank)].pid)) view->stopped.push_back(rank);
  }
}

PendingView viewOf(const std::string& name, const flow::TensorSpec& spec, uint64_t age) {
  PendingView view;
  view.name = name;
  view.kind = shm::opKindName(spec.kind);
  view.dtype = shm::dtypeName(spec.dtype);
  view.shape = flow::shapeText(spec.shape);
  view.ageMs = age;
  return view;
}

}  // namespace

void untangle(Job* job) {
  if (job->directWaits.empty()) return;
  std::vector<DirectWait> waits;
  std::copy_if(job->directWaits.begin(), job->directWaits.end(), std::back_inserter(waits),
               [job](const DirectWait& wait) { return !job->hasAllPosts(wait); });
  std::set<uint32_t> indices;
  for (const DirectWait& wait : waits) indices.insert(wait.index);
  const auto& entries = job->table.entries();
  const bool meetsRing = std::any_of(entries.begin(), entries.end(), [&waits](const auto& entry) {
    return lacksWaiter(entry.second, waits);
  });
  if (indices.size() < 2 && !meetsRing) return;
  for (const uint32_t index : indices) job->board.withdraw(index, job->size);
}

void reportDeadlock(Job* job) {
  if (job->running > 0) return;
  // The usual case, cheaply: some rank is awake.
  std::vector<bool> sleeps(job->members.size());
  for (size_t r = 0; r < sleeps.size(); ++r) sleeps[r] = !job->requestWaits[r].empty();
  for (const DirectWait& wait : job->directWaits)
    if (!job->hasAllPosts(wait)) sleeps[static_cast<size_t>(wait.rank)] = true;
  if (std::find(sleeps.begin(), sleeps.end(), false) != sleeps.end()) {
    job->reportedDeadlock.clear();
    return;
  }
  const auto found = observe::findDeadlock(job->sleepers());
  const std::string text = found.value_or("");
  if (!text.empty() && text != job->reportedDeadlock)
    base::logWarning("job '" + base::printable(job->id) + "' is deadlocked: " + text);
  job->reportedDeadlock = text;
}

std::vector<PendingView> pendingOf(const Job& job, flow::TimePoint now) {
  std::vector<PendingView> pending;
  for (const auto& [name, entry] : job.table.entries()) {
    PendingView view = viewOf(name, entry.first().spec, ageMs(entry.since, now));
    std::set<int> present;
    for (int rank = 0; rank < job.size; ++rank)
      if (entry.byRank[static_cast<size_t>(rank)]) present.insert(rank);
    fillRanks(job, present, &view);
    pending.push_back(std::move(view));
  }
  std::set<std::pair<uint32_t, std::string>> seen;
  for (const DirectWait& wait : job.directWaits) {
    if (!seen.insert({wait.index, wait.name}).second) continue;
    PendingView view = viewOf(wait.name, wait.spec, ageMs(wait.since, now));
    std::set<int> present;
    for (int rank = 0; rank < job.size; ++rank)
      if (job.board.hasPosted(rank, wait.index)) present.insert(rank);
    fillRanks(job, present, &view);
    pending.push_back(std::move(view));
  }
  std::sort(pending.begin(), pending.end(),
            [](const PendingView& a, const PendingView& b) { return a.ageMs > b.ageMs; });
  return pending;
}

std::string describePending(const Job& job, const PendingView& pending) {
  // A rank that has posted and was then stopped in the middle of the sum is as guilty as a missing one.
  std::vector<int> guilty = pending.missing.empty() ? pending.stopped : pending.missing;
  std::string text = pending.kind + " '" + base::printable(pending.name) + "' waits since " +
                     std::to_string(pending.ageMs) + " ms for ranks " + observe::rankList(guilty);
  for (size_t i = 0; i < std::min(guilty.size(), kMaxRanksDescribed); ++i) {
    const bool isStopped =
        std::find(pending.stopped.begin(), pending.stopped.end(), guilty[i]) != pending.stopped.end();
    text += std::string(i == 0 ? ": " : ", ") + job.describe(guilty[i]) + (isStopped ? " is stopped" : "");
  }
  return text + "; present are ranks " + observe::rankList(pending.present);
}

void reportStalls(Job* job, flow::TimePoint now, milliseconds warnAfter) {
  if (job->table.entries().empty() && job->directWaits.empty()) {
    job->nextStallLine.clear();
    return;
  }
  size_t lines = 0;
  size_t more = 0;
  for (const PendingView& pending : pendingOf(*job, now)) {
    if (pending.ageMs < static_cast<uint64_t>(warnAfter.count())) break;  // Sorted: the rest is younger.
    const auto [next, isNew] = job->nextStallLine.try_emplace(pending.name, now);
    if (now < next->second) continue;
    next->second = now + milliseconds(std::max<uint64_t>(pending.ageMs, 1000));
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
