// SPDX-License-Identifier: Apache-2.0
#pragma once

// The process sets of one job, each with the requests that wait in it. Sets do not know of each
// other: what waits in one holds up nothing in another. Pure. Engine thread.

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "daemon/negotiate/tensor_table.h"

namespace rueda::negotiate {

constexpr size_t kMaxProcessSets = 1024;  // Of one job: a table each.

class ProcessSets {
 public:
  // With set 0 of all ranks of the job.
  ProcessSets(flow::JobSerial job, int size);

  TensorTable& global() { return *sets_.at(0); }
  const TensorTable& global() const { return *sets_.at(0); }
  // nullptr if there is no such set.
  TensorTable* find(flow::SetId id);

  // The id of the new set: one that became free, oldest first, else the next higher.
  // kInvalidArgument: not ascending ranks of the job. kAlreadyExists: there is a set of just these
  // ranks. kResourceExhausted: kMaxProcessSets.
  shm::Result<flow::SetId> add(const std::vector<int64_t>& ranks);
  // kInvalidArgument: no such set, or set 0. What waited in it is moved to *waiting, to be failed.
  // The number of a set that has a board (shm::kBoards) is free when all its ranks have left that.
  shm::Status remove(flow::SetId id, std::vector<flow::Request>* waiting);
  // `rank` is through with the board of a removed set. True for the last of its ranks: the number
  // is free now.
  bool leave(flow::SetId id, int rank);
  // As find, but also a removed set whose number is not free yet.
  const TensorTable* findWithRemoved(flow::SetId id) const;

  const std::map<flow::SetId, std::unique_ptr<TensorTable>>& all() const { return sets_; }
  // As TensorTable::add() of the set of *request, which there is.
  shm::Status add(flow::Request* request);
  // As the same of every table: in what time does not depend on how many sets are idle.
  std::vector<flow::Decision> takeReady();
  bool hasReady() const;
  bool releaseGroups(flow::TimePoint before);
  bool empty() const;
  bool wants(int rank) const;
  std::vector<flow::Request> takeAll();
  // The sets in which something may wait.
  const std::set<flow::SetId>& active() const { return active_; }

 private:
  const flow::JobSerial job_;
  const int size_;
  std::map<flow::SetId, std::unique_ptr<TensorTable>> sets_;
  std::set<flow::SetId> active_;
  struct Removed {
    std::unique_ptr<TensorTable> table;  // Empty.
    std::set<int> left;
  };
  std::map<flow::SetId, Removed> removed_;  // Whose numbers are not free yet.
  std::deque<flow::SetId> free_;
  flow::SetId next_ = 1;
};

}  // namespace rueda::negotiate
