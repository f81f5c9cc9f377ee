// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/status_service.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/rpc/grpc_status.h"
#include "daemon/serve/text.h"
#include "proto/status.grpc.pb.h"

namespace rueda::serve {
namespace {

// Jobs and operations of one answer, so that it stays below gRPC's 1 MiB (grpc_server.cc) with the
// fixed parts; what does not fit is counted in `omitted`. About 10 000 operations with short names.
constexpr size_t kListBytes = 900 << 10;
// Ranks that operations wait for may take this much of it, 2 000 or more of them.
constexpr size_t kWaitedBytes = 128 << 10;
// Tag and length before an element of a repeated field.
constexpr size_t kElementOverhead = 8;

// Takes the element into the list if its size still fits what is left of the budget.
template <typename Repeated, typename Element>
bool addWithin(size_t* budget, Repeated* list, Element&& element) {
  const size_t bytes = element.ByteSizeLong() + kElementOverhead;
  if (bytes > *budget) return false;
  *budget -= bytes;
  *list->Add() = std::forward<Element>(element);
  return true;
}

bool selected(const flow::JobView& job, const std::string& jobId) {
  return jobId.empty() || job.id == jobId;
}

grpc::Status checkFilter(const flow::StateView& view, const std::string& jobId) {
  const auto matches = [&](const flow::JobView& job) { return selected(job, jobId); };
  if (jobId.empty() || std::any_of(view.jobs.begin(), view.jobs.end(), matches)) {
    return grpc::Status::OK;
  }
  return {grpc::StatusCode::NOT_FOUND, "no job \"" + validUtf8(jobId) + "\""};
}

std::set<int> stoppedRanks(const flow::JobView& job) {
  std::set<int> stopped;
  for (const flow::PendingView& op : job.pending) {
    stopped.insert(op.stopped.begin(), op.stopped.end());
  }
  return stopped;
}

uint64_t oldestMs(const flow::JobView& job) {
  uint64_t oldest = 0;
  for (const flow::PendingView& op : job.pending) oldest = std::max(oldest, op.ageMs);
  return oldest;
}

v1::Rank rankMessage(const flow::RankView& rank, bool stopped) {
  v1::Rank message;
  message.mutable_process()->set_rank(rank.rank);
  message.mutable_process()->set_pid(rank.pid);
  message.mutable_process()->set_host(validUtf8(rank.host));
  message.set_state(rank.state);
  message.set_stopped(stopped);
  message.set_arena_bytes(rank.arenaBytes);
  message.set_submitted(rank.submitted);
  message.set_direct(rank.direct);
  message.set_completed(rank.completed);
  return message;
}

v1::Job jobMessage(const flow::JobView& job) {
  v1::Job message;
  message.set_id(validUtf8(job.id));
  message.set_uid(job.uid);
  message.set_size(job.size);
  message.set_generation(job.generation);
  message.set_state(job.state);
  message.set_failure(validUtf8(job.failure));
  message.set_deadlocked(job.deadlocked);
  const std::set<int> stopped = stoppedRanks(job);
  for (const flow::RankView& rank : job.ranks) {
    *message.add_ranks() = rankMessage(rank, stopped.count(rank.rank) != 0);
  }
  message.set_pending_operations(job.pending.size());
  message.set_oldest_pending_ms(oldestMs(job));
  message.set_ops_completed(job.opsCompleted);
  message.set_ops_direct(job.opsDirect);
  message.set_ops_failed(job.opsFailed);
  message.set_bytes_reduced(job.bytesReduced);
  return message;
}

v1::PendingOperation operationMessage(const flow::JobView& job, const flow::PendingView& op) {
  v1::PendingOperation message;
  message.set_job_id(validUtf8(job.id));
  message.set_kind(op.kind);
  message.set_name(validUtf8(op.name));
  message.set_dtype(op.dtype);
  message.set_shape(op.shape);
  message.mutable_present()->Add(op.present.begin(), op.present.end());
  message.mutable_missing()->Add(op.missing.begin(), op.missing.end());
  message.mutable_stopped()->Add(op.stopped.begin(), op.stopped.end());
  message.set_age_ms(op.ageMs);
  message.set_process_set(op.set);
  return message;
}

// The ranks that operations of one job miss.
std::vector<v1::WaitedRank> waitedRanks(const flow::JobView& job) {
  std::map<int, v1::WaitedRank> byRank;
  for (const flow::PendingView& op : job.pending) {
    if (op.mayWait) continue;
    for (const int rank : op.missing) {
      v1::WaitedRank& waited = byRank[rank];
      waited.set_operations(waited.operations() + 1);
      waited.set_oldest_ms(std::max<uint64_t>(waited.oldest_ms(), op.ageMs));
    }
  }
  for (const flow::RankView& rank : job.ranks) {
    const auto found = byRank.find(rank.rank);
    if (found == byRank.end()) continue;
    found->second.mutable_process()->set_pid(rank.pid);
    found->second.mutable_process()->set_host(validUtf8(rank.host));
  }
  const std::set<int> stopped = stoppedRanks(job);
  std::vector<v1::WaitedRank> list;
  for (auto& [rank, waited] : byRank) {
    waited.set_job_id(validUtf8(job.id));
    waited.mutable_process()->set_rank(rank);
    waited.set_stopped(stopped.count(rank) != 0);
    list.push_back(std::move(waited));
  }
  return list;
}

void fillJobs(const flow::StateView& view, const std::string& jobId, size_t* budget,
              v1::ListJobsResponse* response) {
  for (const flow::JobView& job : view.jobs) {
    if (!selected(job, jobId)) continue;
    if (!addWithin(budget, response->mutable_jobs(), jobMessage(job))) {
      response->set_omitted(response->omitted() + 1);
    }
  }
}

void fillWaited(const flow::StateView& view, const std::string& jobId, size_t* budget,
                v1::ListPendingResponse* response) {
  std::vector<v1::WaitedRank> all;
  for (const flow::JobView& job : view.jobs) {
    if (!selected(job, jobId) || job.pending.empty()) continue;
    v1::PendingJob summary;
    summary.set_job_id(validUtf8(job.id));
    summary.set_operations(job.pending.size());
    summary.set_oldest_ms(oldestMs(job));
    summary.set_deadlocked(job.deadlocked);
    addWithin(budget, response->mutable_jobs(), std::move(summary));
    for (v1::WaitedRank& waited : waitedRanks(job)) all.push_back(std::move(waited));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.operations() > b.operations(); });
  size_t waitedBudget = std::min(kWaitedBytes, *budget);
  for (v1::WaitedRank& waited : all) {
    const size_t before = waitedBudget;
    if (!addWithin(&waitedBudget, response->mutable_waited_for(), std::move(waited))) break;
    *budget -= before - waitedBudget;
  }
}

void fillPending(const flow::StateView& view, const std::string& jobId, size_t* budget,
                 v1::ListPendingResponse* response) {
  fillWaited(view, jobId, budget, response);
  std::vector<std::pair<const flow::JobView*, const flow::PendingView*>> operations;
  for (const flow::JobView& job : view.jobs) {
    if (!selected(job, jobId)) continue;
    for (const flow::PendingView& op : job.pending) operations.emplace_back(&job, &op);
  }
  std::stable_sort(operations.begin(), operations.end(),
                   [](const auto& a, const auto& b) { return a.second->ageMs > b.second->ageMs; });
  for (size_t i = 0; i < operations.size(); ++i) {
    const auto [job, op] = operations[i];
    if (!addWithin(budget, response->mutable_operations(), operationMessage(*job, *op))) {
      response->set_omitted(operations.size() - i);
      return;
    }
  }
}

void fillDaemon(const flow::StateView& view, v1::GetStatusResponse* response) {
  v1::Daemon* daemon = response->mutable_daemon();
  daemon->set_version(view.version);
  daemon->set_pid(view.pid);
  daemon->set_socket(validUtf8(view.socket));
  daemon->set_uptime_ms(view.uptimeMs);
  daemon->set_draining(view.draining);
  daemon->set_open_fds(view.openFds);
  daemon->set_threads(view.threads);
  response->mutable_memory()->set_resident_bytes(view.residentBytes);
  response->mutable_memory()->set_shared_bytes(view.sharedBytes);
  v1::Counters* counters = response->mutable_counters();
  counters->set_sessions_accepted(view.sessionsAccepted);
  counters->set_sessions_rejected(view.sessionsRejected);
  counters->set_ranks_lost(view.ranksLost);
  for (const flow::HealthPart& part : view.health) {
    v1::HealthPart* message = response->add_health();
    message->set_name(part.name);
    message->set_serving(part.serving);
    message->set_reason(validUtf8(part.reason));
  }
}

class StatusService final : public v1::Status::CallbackService {
 public:
  explicit StatusService(SnapshotFeed& feed) : feed_(feed) {}

  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override {
    return answer(context, request->job_id(), [request, response](const flow::StateView& view) {
      size_t budget = kListBytes;
      fillDaemon(view, response);
      fillJobs(view, request->job_id(), &budget, response->mutable_jobs());
      fillPending(view, request->job_id(), &budget, response->mutable_pending());
    });
  }

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    return answer(context, request->job_id(), [request, response](const flow::StateView& view) {
      size_t budget = kListBytes;
      fillJobs(view, request->job_id(), &budget, response);
    });
  }

  grpc::ServerUnaryReactor* ListPending(grpc::CallbackServerContext* context,
                                        const v1::ListPendingRequest* request,
                                        v1::ListPendingResponse* response) override {
    return answer(context, request->job_id(), [request, response](const flow::StateView& view) {
      size_t budget = kListBytes;
      fillPending(view, request->job_id(), &budget, response);
    });
  }

 private:
  // gRPC keeps request, response and reactor alive until Finish, also when the caller is gone.
  template <typename Fill>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const std::string& jobId,
                                   Fill fill) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    feed_.request([reactor, &jobId, fill](const SnapshotFeed::Snapshot& snapshot) {
      grpc::Status status = rpc::toGrpc(snapshot.status());
      if (status.ok()) status = checkFilter(snapshot.value(), jobId);
      if (status.ok()) fill(snapshot.value());
      reactor->Finish(status);
    });
    return reactor;
  }

  SnapshotFeed& feed_;
};

}  // namespace

std::unique_ptr<grpc::Service> makeStatusService(SnapshotFeed& feed) {
  return std::make_unique<StatusService>(feed);
}

}  // namespace rueda::serve
