// SPDX-License-Identifier: Apache-2.0
#include "daemon/negotiate/tensor_table.h"

#include <algorithm>
#include <utility>

#include "daemon/base/log.h"
#include "daemon/negotiate/compatibility.h"

namespace rueda::negotiate {

using flow::Decision;
using flow::Request;
using shm::Code;
using shm::Status;

const Request& TensorTable::Entry::first() const {
  const auto it =
      std::find_if(byRank.begin(), byRank.end(), [](const auto& r) { return r.has_value(); });
  RUEDA_CHECK(it != byRank.end());
  return **it;
}

Status TensorTable::add(Request* request) {
  Entry& entry = entries_[request->name];
  if (entry.byRank.empty()) {
    entry.byRank.resize(static_cast<size_t>(size_));
    entry.since = request->arrived;
  }
  std::optional<Request>& place = entry.byRank[static_cast<size_t>(request->rank)];
  if (place) {
    if (request->rank == 0 && request->group != 0)
      countMember(request->group, request->groupSize, request->arrived);
    return {Code::kAlreadyExists,
            std::string(shm::opKindName(place->spec.kind)) + " '" + base::printable(request->name) +
                "' of this rank is still pending; a name may be used again when "
                "its operation has ended"};
  }
  const std::string name = request->name;
  ++waiting_[static_cast<size_t>(request->rank)];
  place = std::move(*request);
  if (++entry.present == size_) complete(name);
  return Status::ok();
}

// REQUIRES: `entry` was just taken out of entries_, its requests are still there.
void TensorTable::forgetWaiting(const Entry& entry) {
  for (size_t rank = 0; rank < entry.byRank.size(); ++rank)
    if (entry.byRank[rank]) --waiting_[rank];
}

void TensorTable::complete(const std::string& name) {
  auto node = entries_.extract(name);
  Entry& entry = node.mapped();
  forgetWaiting(entry);
  Decision decision;
  decision.job = job_;
  for (auto& request : entry.byRank) decision.requests.push_back(std::move(*request));
  decision.error = checkCompatible(decision.requests);
  decision.group = decision.requests.front().group;
  if (decision.group == 0) return ready_.push_back(std::move(decision));
  const uint64_t group = decision.group;
  const uint32_t groupSize = decision.requests.front().groupSize;
  flow::TimePoint last = entry.since;
  for (const Request& request : decision.requests) last = std::max(last, request.arrived);
  groups_[group].decisions.push_back(std::move(decision));
  countMember(group, groupSize, last);
}

// A name of rank 0's group is complete, or was refused. The last one lets all of them go.
void TensorTable::countMember(uint64_t group, uint32_t groupSize, flow::TimePoint at) {
  Group& members = groups_[group];
  if (members.counted == 0) members.since = at;
  if (++members.counted < groupSize) return;
  std::move(members.decisions.begin(), members.decisions.end(), std::back_inserter(ready_));
  groups_.erase(group);
}

bool TensorTable::releaseGroups(flow::TimePoint before) {
  const size_t readyBefore = ready_.size();
  for (auto it = groups_.begin(); it != groups_.end();) {
    if (it->second.since >= before) {
      ++it;
      continue;
    }
    std::move(it->second.decisions.begin(), it->second.decisions.end(), std::back_inserter(ready_));
    it = groups_.erase(it);
  }
  return ready_.size() > readyBefore;
}

std::vector<Decision> TensorTable::takeReady() { return std::exchange(ready_, {}); }

std::vector<Request> TensorTable::takeAll() {
  std::vector<Request> all;
  const auto take = [&all](Decision& decision) {
    std::move(decision.requests.begin(), decision.requests.end(), std::back_inserter(all));
  };
  std::for_each(ready_.begin(), ready_.end(), take);
  for (auto& [id, group] : groups_)
    std::for_each(group.decisions.begin(), group.decisions.end(), take);
  for (auto& [name, entry] : entries_)
    for (auto& request : entry.byRank)
      if (request) all.push_back(std::move(*request));
  ready_.clear();
  groups_.clear();
  entries_.clear();
  std::fill(waiting_.begin(), waiting_.end(), 0);
  return all;
}

}  // namespace rueda::negotiate
