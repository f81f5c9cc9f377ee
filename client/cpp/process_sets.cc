// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/process_sets.h"

#include <algorithm>
#include <string>
#include <utility>

namespace rueda::client {

using shm::Code;
using shm::Result;
using shm::Status;

namespace {

Status noSuchSet(uint32_t set) {
  return {Code::kInvalidArgument, "there is no process set " + std::to_string(set)};
}

}  // namespace

Result<SetPlace> ProcessSets::placeInSmaller(uint32_t set) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sets_.find(set);
  if (it == sets_.end()) return noSuchSet(set);
  const std::vector<int64_t>& ranks = it->second.ranks;
  const auto own = std::lower_bound(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end() || *own != rank_)
    return Status(
        Code::kInvalidArgument,
        "rank " + std::to_string(rank_) + " does not belong to process set " + std::to_string(set));
  return SetPlace{static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size())};
}

bool ProcessSets::hasRank(uint32_t set, int rank) const {
  if (set == 0) return rank >= 0 && rank < size_;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sets_.find(set);
  return it != sets_.end() &&
         std::binary_search(it->second.ranks.begin(), it->second.ranks.end(), rank);
}

Result<int> ProcessSets::placeOf(uint32_t set, int rank) const {
  if (set == 0) return rank;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sets_.find(set);
  if (it == sets_.end()) return noSuchSet(set);
  const std::vector<int64_t>& ranks = it->second.ranks;
  return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

void ProcessSets::add(uint32_t set, std::vector<int64_t> ranks) {
  const std::lock_guard<std::mutex> lock(mutex_);
  sets_[set] = {std::move(ranks), ++lastSerial_};
}

uint64_t ProcessSets::serialOf(uint32_t set) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sets_.find(set);
  return it == sets_.end() ? 0 : it->second.serial;
}

void ProcessSets::remove(uint32_t set, uint64_t serial) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto it = sets_.find(set);
  if (it != sets_.end() && it->second.serial == serial) sets_.erase(it);
}

}  // namespace rueda::client
