// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests of one process set that wait for its other ranks, by name. Readiness is counted here: a
// name that all ranks have submitted, but for those that have joined, becomes a Decision. Pure: no
// clock, no I/O. Engine thread.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/flow/decision.h"

namespace rueda::negotiate {

class TensorTable {
 public:
  // `members`: ranks of the process set, ascending, without repeats; at least one.
  TensorTable(flow::JobSerial job, std::vector<int> members);

  // kAlreadyExists if this rank has a request of that name waiting, kInvalidArgument if it has
  // joined; then *request is untouched. REQUIRES: request->rank is at request->place here.
  shm::Status add(flow::Request* request);

  // Names complete since the last call, in the order in which they became so. Groups, as the first
  // rank that has not joined has made them, come whole when their last name is complete: ranks may
  // group otherwise, so one of them must decide. A join comes last, when all ranks have joined; its
  // requests are in the order in which they came.
  std::vector<flow::Decision> takeReady();
  // Lets go of what is complete of groups that began to be before `before` and are not whole: ranks
  // that group otherwise may wait for one name before they submit the next. True if there was any.
  bool releaseGroups(flow::TimePoint before);

  // Everything that waits, for failing it. The table is empty afterwards.
  std::vector<flow::Request> takeAll();

  struct Entry {
    std::vector<std::optional<flow::Request>> byPlace;
    size_t present = 0;
    flow::TimePoint since;

    const flow::Request& first() const;
  };
  const std::unordered_map<std::string, Entry>& entries() const { return entries_; }
  // Ranks that have joined, in the order in which they did; empty again when all have.
  const std::vector<flow::Request>& joined() const { return joined_; }
  bool empty() const { return entries_.empty() && groups_.empty() && joined_.empty(); }
  // Whether takeReady() has something to give.
  bool hasReady() const { return !ready_.empty(); }
  const std::vector<int>& members() const { return *members_; }
  std::optional<int> placeOf(int rank) const;
  bool hasJoined(int place) const;
  // Whether some name waits for this rank, which has not joined.
  bool wants(int rank) const;

 private:
  shm::Status addJoin(flow::Request* request);
  bool isComplete(const Entry& entry) const;
  void complete(const std::string& name);
  void completeJoin();
  void forgetWaiting(const Entry& entry);
  void countMember(uint64_t group, uint32_t groupSize, flow::TimePoint at);
  int leader() const;

  struct Group {
    uint32_t counted = 0;   // Members that are complete, or refused.
    flow::TimePoint since;  // When the first of them was.
    std::vector<flow::Decision> decisions;
  };

  const flow::JobSerial job_;
  const std::shared_ptr<const std::vector<int>> members_;
  std::unordered_map<std::string, Entry> entries_;
  std::vector<flow::Request> joined_;
  std::vector<size_t> waiting_;       // Requests in entries_, by place.
  std::map<uint64_t, Group> groups_;  // Groups of which some names are complete.
  std::vector<flow::Decision> ready_;
};

}  // namespace rueda::negotiate
