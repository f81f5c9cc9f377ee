// SPDX-License-Identifier: Apache-2.0

// The JSON half of render.h, apart because of the size of its library.

#include <nlohmann/json.hpp>

#include "client/cli/render.h"

namespace rueda::cli {
namespace {

// Fields keep the order in which they are written here.
using Json = nlohmann::ordered_json;

// Texts are valid UTF-8 by the proto's rule; a byte that is not is replaced and never fatal.
std::string dumped(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json toJson(const v1::HealthPart& part);
Json toJson(const v1::Rank& rank);
Json toJson(const v1::Job& job);
Json toJson(const v1::PendingOperation& op);
Json toJson(const v1::WaitedRank& waited);
Json toJson(const v1::PendingJob& job);

template <typename Repeated>
Json list(const Repeated& items) {
  Json array = Json::array();
  for (const auto& item : items) array.push_back(toJson(item));
  return array;
}

Json numbers(const google::protobuf::RepeatedField<int32_t>& items) {
  Json array = Json::array();
  for (const int32_t item : items) array.push_back(item);
  return array;
}

Json toJson(const v1::HealthPart& part) {
  return {{"name", part.name()}, {"serving", part.serving()}, {"reason", part.reason()}};
}

Json toJson(const v1::Rank& rank) {
  return {{"rank", rank.process().rank()}, {"pid", rank.process().pid()},
          {"host", rank.process().host()}, {"state", rank.state()},
          {"stopped", rank.stopped()},     {"arena_bytes", rank.arena_bytes()},
          {"submitted", rank.submitted()}, {"completed", rank.completed()},
          {"direct", rank.direct()}};
}

Json toJson(const v1::Job& job) {
  return {{"id", job.id()},
          {"uid", job.uid()},
          {"size", job.size()},
          {"generation", job.generation()},
          {"state", job.state()},
          {"failure", job.failure()},
          {"deadlocked", job.deadlocked()},
          {"pending_operations", job.pending_operations()},
          {"oldest_pending_ms", job.oldest_pending_ms()},
          {"ops_completed", job.ops_completed()},
          {"ops_direct", job.ops_direct()},
          {"ops_failed", job.ops_failed()},
          {"bytes_reduced", job.bytes_reduced()},
          {"ranks", list(job.ranks())}};
}

Json toJson(const v1::PendingOperation& op) {
  return {{"job_id", op.job_id()},
          {"kind", op.kind()},
          {"name", op.name()},
          {"process_set", op.process_set()},
          {"dtype", op.dtype()},
          {"shape", op.shape()},
          {"age_ms", op.age_ms()},
          {"present", numbers(op.present())},
          {"missing", numbers(op.missing())},
          {"stopped", numbers(op.stopped())}};
}

Json toJson(const v1::WaitedRank& waited) {
  return {{"job_id", waited.job_id()},      {"rank", waited.process().rank()},
          {"pid", waited.process().pid()},  {"host", waited.process().host()},
          {"stopped", waited.stopped()},    {"operations", waited.operations()},
          {"oldest_ms", waited.oldest_ms()}};
}

Json toJson(const v1::PendingJob& job) {
  return {{"job_id", job.job_id()},
          {"operations", job.operations()},
          {"oldest_ms", job.oldest_ms()},
          {"deadlocked", job.deadlocked()}};
}

Json toJson(const v1::ListPendingResponse& response) {
  return {{"operations", list(response.operations())},
          {"operations_omitted", response.omitted()},
          {"waited_for", list(response.waited_for())},
          {"jobs", list(response.jobs())}};
}

Json daemonJson(const v1::Daemon& daemon) {
  return {{"version", daemon.version()},   {"pid", daemon.pid()},
          {"socket", daemon.socket()},     {"uptime_ms", daemon.uptime_ms()},
          {"draining", daemon.draining()}, {"open_fds", daemon.open_fds()},
          {"threads", daemon.threads()}};
}

}  // namespace

std::string jsonStatus(const v1::GetStatusResponse& response) {
  const v1::Memory& memory = response.memory();
  const v1::Counters& counters = response.counters();
  return dumped(
      {{"daemon", daemonJson(response.daemon())},
       {"memory",
        {{"resident_bytes", memory.resident_bytes()}, {"shared_bytes", memory.shared_bytes()}}},
       {"counters",
        {{"sessions_accepted", counters.sessions_accepted()},
         {"sessions_rejected", counters.sessions_rejected()},
         {"ranks_lost", counters.ranks_lost()}}},
       {"health", list(response.health())},
       {"jobs", list(response.jobs().jobs())},
       {"jobs_omitted", response.jobs().omitted()},
       {"pending", toJson(response.pending())}});
}

std::string jsonJobs(const v1::ListJobsResponse& response) {
  return dumped({{"jobs", list(response.jobs())}, {"jobs_omitted", response.omitted()}});
}

std::string jsonPending(const v1::ListPendingResponse& response) {
  return dumped(toJson(response));
}

std::string jsonHealth(const v1::GetStatusResponse& response) {
  Json failed = Json::array();
  Json deadlocked = Json::array();
  for (const v1::Job& job : response.jobs().jobs()) {
    if (job.state() == "failed") failed.push_back({{"id", job.id()}, {"failure", job.failure()}});
    if (job.deadlocked()) deadlocked.push_back(job.id());
  }
  return dumped({{"healthy", isHealthy(response)},
                 {"draining", response.daemon().draining()},
                 {"health", list(response.health())},
                 {"failed_jobs", failed},
                 {"deadlocked_jobs", deadlocked}});
}

}  // namespace rueda::cli
