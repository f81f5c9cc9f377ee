// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests of one job that wait for the other ranks, by name. Readiness is counted here: a name
// that all ranks have submitted becomes a Decision. Pure: no clock, no I/O. Engine thread.

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/flow/decision.h"

namespace rueda::negotiate {

class TensorTable {
 public:
  TensorTable(flow::JobSerial job, int size)
      : job_(job), size_(size), waiting_(static_cast<size_t>(size)) {}

  // kAlreadyExists if this rank has a request of that name waiting; then *request is untouched.
  shm::Status add(flow::Request* request);

  // Names complete on all ranks since the last call, in the order in which they became so. Groups,
  // as rank 0 has made them, come whole when their last name is complete: ranks may group
  // otherwise, so one of them must decide.
  std::vector<flow::Decision> takeReady();
  // Lets go of what is complete of groups that began to be before `before` and are not whole: ranks
  // that group otherwise may wait for one name before they submit the next. True if there was any.
  bool releaseGroups(flow::TimePoint before);

  // Everything that waits, for failing it. The table is empty afterwards.
  std::vector<flow::Request> takeAll();

  struct Entry {
    std::vector<std::optional<flow::Request>> byRank;
    int present = 0;
    flow::TimePoint since;

    const flow::Request& first() const;
  };
  const std::unordered_map<std::string, Entry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty() && groups_.empty(); }
  // Whether some name waits for this rank.
  bool wants(int rank) const { return waiting_[static_cast<size_t>(rank)] < entries_.size(); }

 private:
  void complete(const std::string& name);
  void forgetWaiting(const Entry& entry);
  void countMember(uint64_t group, uint32_t groupSize, flow::TimePoint at);

  struct Group {
    uint32_t counted = 0;   // Members that are complete, or refused.
    flow::TimePoint since;  // When the first of them was.
    std::vector<flow::Decision> decisions;
  };

  const flow::JobSerial job_;
  const int size_;
  std::unordered_map<std::string, Entry> entries_;
  std::vector<size_t> waiting_;       // Requests in entries_, by rank.
  std::map<uint64_t, Group> groups_;  // Groups of which some names are complete.
  std::vector<flow::Decision> ready_;
};

}  // namespace rueda::negotiate
