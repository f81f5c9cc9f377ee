// SPDX-License-Identifier: Apache-2.0
#pragma once

// All jobs: who may join which, and how a job fails or ends. A job is (uid, job id); when its ranks
// leave or it fails, the next hello under that id begins a new generation. Engine thread.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/disposer.h"
#include "daemon/engine/job.h"
#include "daemon/submit/quota.h"
#include "daemon/submit/session.h"

namespace rueda::engine {

class Jobs {
 public:
  // Sends a notice to a session, if it still exists.
  using Notify = std::function<void(flow::SessionId, const shm::Notice&)>;

  // `quota` and `disposer` outlive this.
  Jobs(submit::Quota& quota, const base::Disposer& disposer, Notify notify)
      : quota_(quota), disposer_(disposer), notify_(std::move(notify)) {}

  // The job that `session` belongs into, made if need be; the rank's place is taken. Errors:
  // kAlreadyExists (a live process has the rank), kMismatch (size or isolation),
  // kResourceExhausted.
  shm::Result<Job*> join(const submit::Session& session, const submit::Greeting& greeting);

  // Remembers why a rank could not join, for those that wait for it.
  void noteRefusal(uid_t uid, const submit::Greeting& greeting, const shm::Status& reason);

  Job* find(flow::JobSerial serial);
  std::map<flow::JobSerial, std::unique_ptr<Job>>& all() { return jobs_; }
  const std::map<flow::JobSerial, std::unique_ptr<Job>>& all() const { return jobs_; }

  // Ends a running job: direct operations stop, ranks are told, every waiting request gets `status`
  // (appended to *outcomes). The first failure of a job wins.
  void finish(Job* job, Job::State state, int rank, const shm::Status& status,
              std::vector<flow::Outcome>* outcomes);
  // The rank's session is gone; `cause` ("was killed by signal 9") is for those that still wait for
  // it.
  void leave(Job* job, int rank, Member::State how, const std::string& cause);
  // Removes the job if no session is left in it and nothing runs, with its memory.
  void removeIfEmpty(flow::JobSerial serial);

  // A segment of `bytes` for `rank`; mapped nowhere yet.
  shm::Result<std::shared_ptr<flow::Segment>> addSegment(Job* job, int rank, uint64_t bytes);

  // Ranks of all jobs: with the cores it decides whether waiters spin or yield.
  int totalRanks() const;

 private:
  shm::Status checkPlace(const Job& job, const submit::Greeting& greeting) const;
  shm::Result<Job*> create(uid_t uid, const submit::Greeting& greeting);

  submit::Quota& quota_;
  const base::Disposer& disposer_;
  const Notify notify_;
  std::map<flow::JobSerial, std::unique_ptr<Job>> jobs_;
  std::map<std::pair<uid_t, std::string>, flow::JobSerial> latest_;
  flow::JobSerial nextSerial_ = 1;
};

}  // namespace rueda::engine
