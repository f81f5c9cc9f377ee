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

  // Of the job.
  int rank() const { return rank_; }
  int size() const { return size_; }

  // kInvalidArgument: there is no such set, or this rank does not belong to it.
  shm::Result<SetPlace> placeIn(uint32_t set) const {
    return set == 0 ? shm::Result<SetPlace>(SetPlace{rank_, size_}) : placeInSmaller(set);
  }
  // Whether the set has this rank, be it this process's or not.
  bool hasRank(uint32_t set, int rank) const;
  // Where a rank of the set is in it. kInvalidArgument: there is no such set any more.
  shm::Result<int> placeOf(uint32_t set, int rank) const;
  void add(uint32_t set, std::vector<int64_t> ranks);
  // Which set has that number now; 0: none. Numbers are used again.
  uint64_t serialOf(uint32_t set) const;
  // Not if the number is another set's by now, which a thread has added meanwhile.
  void remove(uint32_t set, uint64_t serial);

 private:
  struct Known {
    std::vector<int64_t> ranks;  // Ascending.
    uint64_t serial = 0;
  };
  shm::Result<SetPlace> placeInSmaller(uint32_t set) const;

  const int rank_;
  const int size_;
  mutable std::mutex mutex_;
  std::map<uint32_t, Known> sets_;  // Guarded by mutex_.
  uint64_t lastSerial_ = 0;         // Guarded by mutex_.
};

}  // namespace rueda::client
