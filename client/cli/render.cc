// SPDX-License-Identifier: Apache-2.0
#include "client/cli/render.h"

#include <algorithm>
#include <map>
#include <utility>

#include "client/cli/format.h"

namespace rueda::cli {
namespace {

// Lists for people; --json has everything.
constexpr int kMaxOperations = 50;
constexpr int kMaxWaitedRanks = 10;
constexpr int kMaxMissingNamed = 4;
constexpr size_t kNameColumns = 60;
constexpr size_t kJobColumns = 40;

using RankKey = std::pair<std::string, int>;
using WaitedByRank = std::map<RankKey, const v1::WaitedRank*>;

std::string plural(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// "3 (pid 4711 on hostA, stopped)", "5 (not connected)".
std::string rankWithProcess(const v1::Process& process, bool stopped) {
  std::string text = std::to_string(process.rank());
  if (process.pid() == 0) return text + " (not connected)";
  text += " (pid " + std::to_string(process.pid());
  if (!process.host().empty()) text += " on " + printable(process.host());
  return text + (stopped ? ", stopped)" : ")");
}

// "failed: rank 1 …", "DEADLOCKED", "running".
std::string jobState(const v1::Job& job) {
  std::string state = printable(job.state());
  if (job.deadlocked()) state += ", DEADLOCKED";
  return state;
}

std::string omittedLine(uint64_t count, const char* noun) {
  return count == 0 ? "" : "and " + plural(count, std::string("more ") + noun) + "\n";
}

std::string jobTable(const v1::ListJobsResponse& jobs) {
  if (jobs.jobs().empty() && jobs.omitted() == 0) return "no jobs\n";
  Table table(
      {"JOB", "UID", "RANKS", "STATE", "PENDING", "OLDEST", "DIRECT", "DONE", "FAILED", "REDUCED"});
  for (const v1::Job& job : jobs.jobs()) {
    table.add({shortened(job.id(), kJobColumns), std::to_string(job.uid()),
               std::to_string(job.ranks_size()) + "/" + std::to_string(job.size()), jobState(job),
               std::to_string(job.pending_operations()),
               job.pending_operations() == 0 ? "-" : formatAge(job.oldest_pending_ms()),
               std::to_string(job.ops_direct()), std::to_string(job.ops_completed()),
               std::to_string(job.ops_failed()), formatBytes(job.bytes_reduced())});
  }
  return table.toString() + omittedLine(jobs.omitted(), "job");
}

std::string healthTable(const v1::GetStatusResponse& response) {
  Table table({"PART", "STATE", "REASON"});
  for (const v1::HealthPart& part : response.health()) {
    table.add({printable(part.name()), part.serving() ? "serving" : "NOT SERVING",
               printable(part.reason())});
  }
  return table.toString();
}

// "waits for rank …" of one job, as one line.
std::string waitedLine(const v1::WaitedRank& waited, uint32_t jobOperations) {
  return "job " + shortened(waited.job_id(), kJobColumns) + " waits for rank " +
         rankWithProcess(waited.process(), waited.stopped()) + ": missing in " +
         std::to_string(waited.operations()) + " of " + plural(jobOperations, "operation") +
         ", oldest " + formatAge(waited.oldest_ms()) + "\n";
}

std::string waitedLines(const v1::ListPendingResponse& response) {
  std::map<std::string, uint32_t> operations;
  std::string text;
  for (const v1::PendingJob& job : response.jobs()) {
    operations[job.job_id()] = job.operations();
    if (!job.deadlocked()) continue;
    text += "job " + shortened(job.job_id(), kJobColumns) +
            " is DEADLOCKED: every rank blocks on an operation that another rank lacks\n";
  }
  const int shown = std::min(response.waited_for_size(), kMaxWaitedRanks);
  for (int i = 0; i < shown; ++i) {
    const v1::WaitedRank& waited = response.waited_for(i);
    text += waitedLine(waited, operations[waited.job_id()]);
  }
  return text + omittedLine(response.waited_for_size() - shown, "waited-for rank");
}

// The missing ranks of one operation with their processes, the first few by name.
std::string missingCell(const v1::PendingOperation& op, const WaitedByRank& waited) {
  if (op.missing().empty()) return "-";
  std::string text;
  const int named = std::min(op.missing_size(), kMaxMissingNamed);
  for (int i = 0; i < named; ++i) {
    v1::Process process;
    process.set_rank(op.missing(i));
    const auto found = waited.find({op.job_id(), op.missing(i)});
    const bool known = found != waited.end();
    const bool stopped =
        std::find(op.stopped().begin(), op.stopped().end(), op.missing(i)) != op.stopped().end();
    text += (i == 0 ? "" : ", ");
    text +=
        known ? rankWithProcess(found->second->process(), stopped) : std::to_string(op.missing(i));
  }
  if (named == op.missing_size()) return text;
  return text + ", and " +
         formatRanks(std::vector<int>(op.missing().begin() + named, op.missing().end()));
}

std::string presentCell(const v1::PendingOperation& op) {
  std::vector<int> stopped;
  for (const int rank : op.present()) {
    if (std::find(op.stopped().begin(), op.stopped().end(), rank) != op.stopped().end()) {
      stopped.push_back(rank);
    }
  }
  std::string text = formatRanks(std::vector<int>(op.present().begin(), op.present().end()));
  return stopped.empty() ? text : text + " (stopped: " + formatRanks(stopped) + ")";
}

}  // namespace

std::string renderStatus(const v1::GetStatusResponse& response) {
  const v1::Daemon& daemon = response.daemon();
  const v1::Counters& counters = response.counters();
  std::string text = "ruedad " + printable(daemon.version()) + ", pid " +
                     std::to_string(daemon.pid()) + ", up " + formatAge(daemon.uptime_ms()) +
                     (daemon.draining() ? ", DRAINING: no new jobs" : "") + "\n";
  text += "socket    " + printable(daemon.socket()) + "\n";
  text += "memory    " + formatBytes(response.memory().resident_bytes()) + " resident, " +
          formatBytes(response.memory().shared_bytes()) + " shared with ranks\n";
  text += "sessions  " + std::to_string(counters.sessions_accepted()) + " accepted, " +
          std::to_string(counters.sessions_rejected()) + " rejected, " +
          plural(counters.ranks_lost(), "rank") + " lost\n";
  text += "process   " + plural(daemon.threads(), "thread") + ", " +
          plural(daemon.open_fds(), "open descriptor") + "\n";
  text += "health    ";
  bool serving = true;
  for (const v1::HealthPart& part : response.health()) {
    if (part.serving()) continue;
    text += (serving ? "" : "; ") + printable(part.name()) +
            " NOT SERVING: " + printable(part.reason());
    serving = false;
  }
  text += serving ? "all parts serve\n\n" : "\n\n";
  return text + jobTable(response.jobs());
}

std::string renderJobs(const v1::ListJobsResponse& response) {
  std::string text = jobTable(response);
  for (const v1::Job& job : response.jobs()) {
    text += "\njob " + printable(job.id()) + ": " + jobState(job) + ", generation " +
            std::to_string(job.generation()) + "\n";
    if (!job.failure().empty()) text += "failure: " + printable(job.failure()) + "\n";
    Table table({"RANK", "PID", "HOST", "STATE", "DIRECT", "SUBMITTED", "COMPLETED", "ARENA"});
    for (const v1::Rank& rank : job.ranks()) {
      table.add({std::to_string(rank.process().rank()), std::to_string(rank.process().pid()),
                 printable(rank.process().host()),
                 printable(rank.state()) + (rank.stopped() ? ", stopped" : ""),
                 std::to_string(rank.direct()), std::to_string(rank.submitted()),
                 std::to_string(rank.completed()), formatBytes(rank.arena_bytes())});
    }
    text += table.toString();
  }
  return text;
}

std::string renderPending(const v1::ListPendingResponse& response) {
  if (response.operations().empty() && response.omitted() == 0) return "nothing pending\n";
  WaitedByRank waited;
  for (const v1::WaitedRank& rank : response.waited_for()) {
    waited[{rank.job_id(), rank.process().rank()}] = &rank;
  }
  Table table({"JOB", "OP", "NAME", "AGE", "PRESENT", "MISSING"});
  const int shown = std::min(response.operations_size(), kMaxOperations);
  for (int i = 0; i < shown; ++i) {
    const v1::PendingOperation& op = response.operations(i);
    const std::string set =
        op.process_set() == 0 ? "" : " of set " + std::to_string(op.process_set());
    table.add({shortened(op.job_id(), kJobColumns), printable(op.kind()) + set,
               shortened(op.name(), kNameColumns), formatAge(op.age_ms()), presentCell(op),
               missingCell(op, waited)});
  }
  const uint64_t rest = response.operations_size() - shown + response.omitted();
  return waitedLines(response) + table.toString() + omittedLine(rest, "operation");
}

std::string renderHealth(const v1::GetStatusResponse& response) {
  std::string text = std::string(isHealthy(response) ? "healthy" : "UNHEALTHY") +
                     (response.daemon().draining() ? ", draining\n" : "\n") + healthTable(response);
  for (const v1::Job& job : response.jobs().jobs()) {
    const std::string id = "job " + printable(job.id());
    if (job.state() == "failed") text += id + " failed: " + printable(job.failure()) + "\n";
    if (job.deadlocked()) text += id + " is DEADLOCKED; see ruedactl pending\n";
  }
  return text;
}

bool isHealthy(const v1::GetStatusResponse& response) {
  const auto& parts = response.health();
  const auto& jobs = response.jobs().jobs();
  return std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.serving(); }) &&
         std::none_of(jobs.begin(), jobs.end(), [](const v1::Job& job) {
           return job.deadlocked() || job.state() == "failed";
         });
}

}  // namespace rueda::cli
