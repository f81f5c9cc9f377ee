// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/job.h"

#include <algorithm>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/observe/deadlock.h"

namespace rueda::engine {

using shm::Result;
using shm::Status;

Job::Job(flow::JobSerial jobSerial, uid_t owner, std::string jobId, int jobSize, bool isIsolated,
         membership::BoardKeeper jobBoards)
    : serial(jobSerial),
      uid(owner),
      id(std::move(jobId)),
      size(jobSize),
      isolated(isIsolated),
      members(static_cast<size_t>(jobSize)),
      boards(std::move(jobBoards)),
      sets(jobSerial, jobSize),
      requestWaits(static_cast<size_t>(jobSize)) {}

std::vector<int> Job::ranksIn(Member::State wanted) const {
  std::vector<int> ranks;
  for (size_t r = 0; r < members.size(); ++r)
    if (members[r].state == wanted) ranks.push_back(static_cast<int>(r));
  return ranks;
}

std::string Job::describeAbsent(const std::string& span) const {
  constexpr size_t kMaxTries = 4;
  const std::vector<int> absent = ranksIn(Member::State::kAbsent);
  std::string text = "ranks " + observe::rankList(absent) + " of " + std::to_string(size) +
                     " have not connected" + span;
  size_t tries = 0;
  for (const int rank : absent) {
    const std::string& lastTry = members[static_cast<size_t>(rank)].lastTry;
    if (!lastTry.empty() && ++tries <= kMaxTries) text += "; " + lastTry;
  }
  return text;
}

bool Job::hasSessions() const {
  return std::any_of(members.begin(), members.end(),
                     [](const Member& m) { return m.state == Member::State::kRunning; });
}

std::string Job::describe(int rank) const {
  const Member& member = members[static_cast<size_t>(rank)];
  return "rank " + std::to_string(rank) + " (pid " + std::to_string(member.pid) + " on host " +
         base::printable(member.host) + ")";
}

Result<flow::SetId> Job::addSet(const std::vector<int64_t>& ranks) {
  RUEDA_ASSIGN_OR_RETURN(const flow::SetId set, sets.add(ranks));
  if (set < shm::kBoards) boards.open(set, sets.find(set)->members());
  return set;
}

Status Job::removeSet(flow::SetId set, std::vector<flow::Request>* waiting) {
  RUEDA_RETURN_IF_ERROR(sets.remove(set, waiting));
  if (set < shm::kBoards)
    boards.close(set);  // The number is free when all have left.
  else
    sets.giveBack(set);
  return Status::ok();
}

void Job::leaveBoard(flow::SetId set, int rank) {
  if (!boards.leave(set, rank)) return;
  directWaits.erase(std::remove_if(directWaits.begin(), directWaits.end(),
                                   [set](const DirectWait& wait) { return wait.set == set; }),
                    directWaits.end());
  sets.giveBack(set);
}

bool Job::wants(int rank) const {
  return sets.wants(rank) ||
         std::any_of(directWaits.begin(), directWaits.end(), [this, rank](const DirectWait& wait) {
           return boards.seats().placeOf(wait.set, rank).has_value();
         });
}

std::vector<std::set<observe::WaitedFor>> Job::sleepers() const {
  std::vector<std::set<observe::WaitedFor>> waiting(members.size());
  for (size_t r = 0; r < members.size(); ++r)
    for (const auto& [request, operation] : requestWaits[r]) waiting[r].insert(operation);
  for (const DirectWait& wait : directWaits)
    if (sleepsOn(wait))
      waiting[static_cast<size_t>(wait.rank)].insert(
          {describeOperation(wait.spec.kind, wait.name, wait.set),
           boards.seats().ranksOf(wait.set).size()});
  return waiting;
}

std::vector<size_t> Job::countSleepers() const {
  std::vector<size_t> counts(members.size());
  for (size_t r = 0; r < counts.size(); ++r) counts[r] = requestWaits[r].size();
  for (const DirectWait& wait : directWaits)
    if (sleepsOn(wait)) ++counts[static_cast<size_t>(wait.rank)];
  return counts;
}

std::string describeOperation(shm::OpKind kind, const std::string& name, flow::SetId set) {
  return std::string(shm::opKindName(kind)) + " '" + base::printable(name) + "'" +
         (set == 0 ? "" : " of process set " + std::to_string(set));
}

}  // namespace rueda::engine
