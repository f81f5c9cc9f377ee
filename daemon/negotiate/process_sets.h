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

  // nullptr if there is no such set.
  TensorTable* find(flow::SetId id);
  const TensorTable* find(flow::SetId id) const;

  // The id of the new set: of those given back the one that was first (scripts may rely on
  // Horovod's order, so none with a board is preferred), else the next higher.
  // kInvalidArgument: not ascending ranks of the job. kAlreadyExists: there is a set of just these
  // ranks. kResourceExhausted: kMaxProcessSets.
  shm::Result<flow::SetId> add(const std::vector<int64_t>& ranks);
  // kInvalidArgument: no such set, or set 0. What waited in it is moved to *waiting, to be failed.
  // The number is not given out again before giveBack().
  shm::Status remove(flow::SetId id, std::vector<flow::Request>* waiting);
  // REQUIRES: a set of that number was removed, and nobody uses it any more.
  void giveBack(flow::SetId id) { free_.push_back(id); }

  // As TensorTable::add() of the set of *request, which there is.
  shm::Status add(flow::Request* request);
  // As the same of every table: in what time does not depend on how many sets are idle.
  std::vector<flow::Decision> takeReady();
  bool hasReady() const;
  bool releaseGroups(flow::TimePoint before);
  bool wants(int rank) const;
  std::vector<flow::Request> takeAll();
  // The sets in which something may wait: after takeReady(), in which something does.
  const std::set<flow::SetId>& active() const { return active_; }

 private:
  const flow::JobSerial job_;
  const int size_;
  std::map<flow::SetId, std::unique_ptr<TensorTable>> sets_;
  std::set<flow::SetId> active_;
  std::deque<flow::SetId> free_;
  flow::SetId next_ = 1;
};

}  // namespace rueda::negotiate
