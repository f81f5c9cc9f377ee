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
using shm::OpKind;
using shm::Status;

const Request& TensorTable::Entry::first() const {
  const auto it =
      std::find_if(byPlace.begin(), byPlace.end(), [](const auto& r) { return r.has_value(); });
  RUEDA_CHECK(it != byPlace.end());
  return **it;
}

TensorTable::TensorTable(flow::JobSerial job, std::vector<int> members)
    : job_(job),
      members_(std::make_shared<const std::vector<int>>(std::move(members))),
      waiting_(members_->size()) {
  RUEDA_CHECK(!members_->empty());
}

std::optional<int> TensorTable::placeOf(int rank) const {
  const auto it = std::lower_bound(members_->begin(), members_->end(), rank);
  if (it == members_->end() || *it != rank) return std::nullopt;
  return static_cast<int>(it - members_->begin());
}

bool TensorTable::hasJoined(int place) const {
  return std::any_of(joined_.begin(), joined_.end(),
                     [place](const Request& request) { return request.place == place; });
}

bool TensorTable::wants(int rank) const {
  const auto place = placeOf(rank);
  return place && waiting_[static_cast<size_t>(*place)] < entries_.size() && !hasJoined(*place);
}

// Place of the rank whose groups count.
int TensorTable::leader() const {
  for (int place = 0; place < static_cast<int>(members_->size()); ++place)
    if (!hasJoined(place)) return place;
  return 0;
}

Status TensorTable::add(Request* request) {
  if (request->spec.kind == OpKind::kJoin) return addJoin(request);
  if (hasJoined(request->place))
    return {Code::kInvalidArgument, std::string(shm::opKindName(request->spec.kind)) + " '" +
                                        base::printable(request->name) +
                                        "': this rank has joined, and the others have not"};
  Entry& entry = entries_[request->name];
  if (entry.byPlace.empty()) {
    entry.byPlace.resize(members_->size());
    entry.since = request->arrived;
  }
  std::optional<Request>& place = entry.byPlace[static_cast<size_t>(request->place)];
  if (place) {
    if (request->group != 0 && request->place == leader())
      countMember(request->group, request->groupSize, request->arrived);
    return {Code::kAlreadyExists,
            std::string(shm::opKindName(place->spec.kind)) + " '" + base::printable(request->name) +
                "' of this rank is still pending; a name may be used again when "
                "its operation has ended"};
  }
  const std::string name = request->name;
  ++waiting_[static_cast<size_t>(request->place)];
  place = std::move(*request);
  ++entry.present;
  if (isComplete(entry)) complete(name);
  return Status::ok();
}

Status TensorTable::addJoin(Request* request) {
  if (hasJoined(request->place)) return {Code::kAlreadyExists, "this rank has joined already"};
  joined_.push_back(std::move(*request));
  std::vector<std::pair<flow::TimePoint, std::string>> complete;
  for (const auto& [name, entry] : entries_)
    if (isComplete(entry)) complete.emplace_back(entry.since, name);
  std::sort(complete.begin(), complete.end());
  for (const auto& [since, name] : complete) this->complete(name);
  if (joined_.size() == members_->size()) completeJoin();
  return Status::ok();
}

bool TensorTable::isComplete(const Entry& entry) const {
  if (entry.present == members_->size()) return true;
  if (entry.present + joined_.size() < members_->size()) return false;
  for (size_t place = 0; place < members_->size(); ++place)
    if (!entry.byPlace[place] && !hasJoined(static_cast<int>(place))) return false;
  return true;
}

// REQUIRES: `entry` was just taken out of entries_, its requests are still there.
void TensorTable::forgetWaiting(const Entry& entry) {
  for (size_t place = 0; place < entry.byPlace.size(); ++place)
    if (entry.byPlace[place]) --waiting_[place];
}

void TensorTable::complete(const std::string& name) {
  auto node = entries_.extract(name);
  Entry& entry = node.mapped();
  forgetWaiting(entry);
  Decision decision;
  decision.job = job_;
  decision.members = members_;
  for (auto& request : entry.byPlace)
    if (request) decision.requests.push_back(std::move(*request));
  for (const Request& request : joined_)
    if (!entry.byPlace[static_cast<size_t>(request.place)])
      decision.joined.push_back({request.place, request.leftOut});
  std::sort(decision.joined.begin(), decision.joined.end(),
            [](const auto& a, const auto& b) { return a.place < b.place; });
  decision.error = checkCompatible(decision);
  decision.group = decision.requests.front().group;
  if (decision.group == 0) return ready_.push_back(std::move(decision));
  const uint64_t group = decision.group;
  const uint32_t groupSize = decision.requests.front().groupSize;
  flow::TimePoint last = entry.since;
  for (const Request& request : decision.requests) last = std::max(last, request.arrived);
  groups_[group].decisions.push_back(std::move(decision));
  countMember(group, groupSize, last);
}

void TensorTable::completeJoin() {
  Decision decision;
  decision.job = job_;
  decision.members = members_;
  decision.requests = std::exchange(joined_, {});
  ready_.push_back(std::move(decision));
}

// A name of the leader's group is complete, or was refused. The last one lets all of them go.
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
  std::vector<Request> all = std::exchange(joined_, {});
  const auto take = [&all](Decision& decision) {
    std::move(decision.requests.begin(), decision.requests.end(), std::back_inserter(all));
  };
  std::for_each(ready_.begin(), ready_.end(), take);
  for (auto& [id, group] : groups_)
    std::for_each(group.decisions.begin(), group.decisions.end(), take);
  for (auto& [name, entry] : entries_)
    for (auto& request : entry.byPlace)
      if (request) all.push_back(std::move(*request));
  ready_.clear();
  groups_.clear();
  entries_.clear();
  std::fill(waiting_.begin(), waiting_.end(), 0);
  return all;
}

}  // namespace rueda::negotiate
