// SPDX-License-Identifier: Apache-2.0
#include "daemon/negotiate/process_sets.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>

namespace rueda::negotiate {

using shm::Code;
using shm::Result;
using shm::Status;

namespace {

std::vector<int> allRanks(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

ProcessSets::ProcessSets(flow::JobSerial job, int size) : job_(job), size_(size) {
  sets_[0] = std::make_unique<TensorTable>(job, allRanks(size));
}

TensorTable* ProcessSets::find(flow::SetId id) {
  const auto it = sets_.find(id);
  return it == sets_.end() ? nullptr : it->second.get();
}

const TensorTable* ProcessSets::find(flow::SetId id) const {
  const auto it = sets_.find(id);
  return it == sets_.end() ? nullptr : it->second.get();
}

Result<flow::SetId> ProcessSets::add(const std::vector<int64_t>& ranks) {
  std::vector<int> members;
  for (const int64_t rank : ranks) {
    if (rank < 0 || rank >= size_ || (!members.empty() && rank <= members.back()))
      return Status(Code::kInvalidArgument,
                    "a process set of ranks " + flow::shapeText(ranks) + ": they must ascend and " +
                        "be ranks of the job, 0 to " + std::to_string(size_ - 1));
    members.push_back(static_cast<int>(rank));
  }
  if (members.empty()) return Status(Code::kInvalidArgument, "a process set needs a rank");
  for (const auto& [id, table] : sets_)
    if (table->members() == members)
      return Status(Code::kAlreadyExists,
                    "process set " + std::to_string(id) +
                        " has these ranks already: " + flow::shapeText(ranks));
  if (sets_.size() >= kMaxProcessSets)
    return Status(Code::kResourceExhausted,
                  "the job has its limit of " + std::to_string(kMaxProcessSets) + " process sets");
  flow::SetId id = next_;
  if (free_.empty()) {
    ++next_;
  } else {
    id = free_.front();
    free_.pop_front();
  }
  sets_[id] = std::make_unique<TensorTable>(job_, std::move(members));
  return id;
}

Status ProcessSets::remove(flow::SetId id, std::vector<flow::Request>* waiting) {
  const auto it = sets_.find(id);
  if (id == 0 || it == sets_.end())
    return {Code::kInvalidArgument, "there is no process set " + std::to_string(id) + " to remove"};
  *waiting = it->second->takeAll();
  sets_.erase(it);
  active_.erase(id);
  return Status::ok();
}

Status ProcessSets::add(flow::Request* request) {
  const flow::SetId set = request->set;
  const Status added = sets_.at(set)->add(request);
  active_.insert(set);
  return added;
}

std::vector<flow::Decision> ProcessSets::takeReady() {
  std::vector<flow::Decision> ready;
  for (auto it = active_.begin(); it != active_.end();) {
    TensorTable& table = *sets_.at(*it);
    for (flow::Decision& decision : table.takeReady()) ready.push_back(std::move(decision));
    it = table.empty() ? active_.erase(it) : std::next(it);
  }
  return ready;
}

bool ProcessSets::releaseGroups(flow::TimePoint before) {
  bool released = false;
  for (const flow::SetId set : active_) released |= sets_.at(set)->releaseGroups(before);
  return released;
}

bool ProcessSets::hasReady() const {
  return std::any_of(active_.begin(), active_.end(),
                     [this](flow::SetId set) { return sets_.at(set)->hasReady(); });
}

bool ProcessSets::wants(int rank) const {
  return std::any_of(active_.begin(), active_.end(),
                     [this, rank](flow::SetId set) { return sets_.at(set)->wants(rank); });
}

std::vector<flow::Request> ProcessSets::takeAll() {
  std::vector<flow::Request> all;
  for (const flow::SetId set : active_)
    for (flow::Request& request : sets_.at(set)->takeAll()) all.push_back(std::move(request));
  active_.clear();
  return all;
}

}  // namespace rueda::negotiate
