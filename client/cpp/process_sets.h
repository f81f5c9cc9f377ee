// SPDX-License-Identifier: Apache-2.0
#pragma once

// The process sets of this rank's job, as the ranks have agreed on them. Any thread.

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "shm/status.h"

namespace rueda::client {

// Where this rank is in a set.
struct SetPlace {
  int place = 0;
  int size = 1;
};

class ProcessSets {
 public:
  ProcessSets(int rank, int size) : rank_(rank), size_(size) {}

  // kInvalidArgument: there is no such set, or this rank does not belong to it.
  shm::Result<SetPlace> placeIn(uint32_t set) const {
    return set == 0 ? shm::Result<SetPlace>(SetPlace{rank_, size_}) : placeInSmaller(set);
  }
  // Whether the set has this rank, be it this process's or not.
  bool hasRank(uint32_t set, int rank) const;
  // REQUIRES: hasRank(set, rank).
  int placeOf(uint32_t set, int rank) const;
  void add(uint32_t set, std::vector<int64_t> ranks);
  void remove(uint32_t set);

 private:
  shm::Result<SetPlace> placeInSmaller(uint32_t set) const;

  const int rank_;
  const int size_;
  mutable std::mutex mutex_;
  std::map<uint32_t, std::vector<int64_t>> sets_;  // Ascending. Guarded by mutex_.
};

}  // namespace rueda::client
