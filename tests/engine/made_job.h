// SPDX-License-Identifier: Apache-2.0
#pragma once

// A job whose requests and sleepers a test makes by itself, without clients or an engine. One
// thread.

#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "daemon/engine/job.h"
#include "tests/kit/flow_maker.h"

namespace rueda::engine::test {

const flow::TimePoint kStart = flow::TimePoint{} + std::chrono::hours(1);

// A running job whose board the test can write, as ranks do.
class Made {
 public:
  // The ranks are in `process`.
  explicit Made(int size, pid_t process = ::getpid())
      : job(1, 1000, "train", size, false,
            std::move(membership::BoardKeeper::create(size)).value()),
        mapping_(std::move(shm::Mapping::map(job.boards.fd(), shm::kBoardsBytes)).value()) {
    job.state = Job::State::kRunning;
    for (Member& member : job.members) {
      member.state = Member::State::kRunning;
      member.pid = process;
      member.host = "a";
    }
  }
  void submit(int rank, const std::string& name, flow::TimePoint when = kStart,
              bool blocking = true, flow::SetId set = 0) {
    flow::Request request = kit::makeRequest(rank, name, 4);
    request.set = set;
    request.place = *job.sets.find(set)->placeOf(rank);
    request.requestId = ++nextId_;
    request.arrived = when;
    REQUIRE(job.sets.add(&request).isOk());
    if (blocking)
      job.requestWaits[static_cast<size_t>(rank)][nextId_] = {"allreduce '" + name + "'",
                                                              job.members.size()};
  }
  void post(int rank, uint32_t index, flow::SetId set = 0) {
    const int place = *job.sets.find(set)->placeOf(rank);
    board(set)->posts[index & 1][place].word.store(shm::tagged(index, 99));
  }
  // Rank has posted and sleeps.
  void sleep(int rank, uint32_t index, const std::string& name, flow::TimePoint when = kStart,
             flow::SetId set = 0) {
    post(rank, index, set);
    DirectWait wait;
    wait.rank = rank;
    wait.set = set;
    wait.noteId = ++nextId_;
    wait.index = index;
    wait.name = name;
    wait.since = when;
    job.directWaits.push_back(wait);
  }
  bool isWithdrawn(uint32_t index, flow::SetId set = 0) {
    return board(set)->withdrawals[index & 1].verdict.load() ==
           shm::tagged(index, shm::kVerdictWithdrawn);
  }

  Job job;

 private:
  shm::Board* board(flow::SetId set) { return shm::boardAt(mapping_.data(), set); }
  shm::Mapping mapping_;
  uint64_t nextId_ = 0;
};

}  // namespace rueda::engine::test
