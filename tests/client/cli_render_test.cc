// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "client/cli/render.h"

namespace {

using namespace rueda::cli;
namespace v1 = rueda::v1;
using nlohmann::json;

void addPending(v1::ListPendingResponse* response, const std::string& name, uint64_t ageMs,
                std::vector<int> present, std::vector<int> missing) {
  v1::PendingOperation* op = response->add_operations();
  op->set_job_id("train-7");
  op->set_kind("allreduce");
  op->set_name(name);
  op->set_dtype("float32");
  op->set_shape("[3, 4]");
  op->set_age_ms(ageMs);
  op->mutable_present()->Add(present.begin(), present.end());
  op->mutable_missing()->Add(missing.begin(), missing.end());
}

v1::WaitedRank* addWaited(v1::ListPendingResponse* response, int rank, int pid, int operations) {
  v1::WaitedRank* waited = response->add_waited_for();
  waited->set_job_id("train-7");
  waited->mutable_process()->set_rank(rank);
  waited->mutable_process()->set_pid(pid);
  if (pid != 0) waited->mutable_process()->set_host("hostA");
  waited->set_operations(operations);
  waited->set_oldest_ms(12'340);
  return waited;
}

v1::PendingJob* addPendingJob(v1::ListPendingResponse* response, int operations) {
  v1::PendingJob* job = response->add_jobs();
  job->set_job_id("train-7");
  job->set_operations(operations);
  job->set_oldest_ms(12'340);
  return job;
}

// Ranks 0 and 1 wait for the stopped rank 2, rank 0 also for rank 1.
v1::ListPendingResponse stuckOnStoppedRank() {
  v1::ListPendingResponse response;
  addPending(&response, "layer1.weight", 12'340, {0, 1}, {2});
  addPending(&response, "l2", 800, {0}, {1, 2});
  for (auto& op : *response.mutable_operations()) op.add_stopped(2);
  addWaited(&response, 2, 4702, 2)->set_stopped(true);
  v1::WaitedRank* second = addWaited(&response, 1, 4701, 1);
  second->set_oldest_ms(800);
  addPendingJob(&response, 2);
  return response;
}

v1::Job* addJob(v1::ListJobsResponse* response, const std::string& id) {
  v1::Job* job = response->add_jobs();
  job->set_id(id);
  job->set_uid(1000);
  job->set_size(2);
  job->set_generation(4);
  job->set_state("running");
  job->set_ops_direct(90000);
  job->set_ops_completed(1200);
  job->set_bytes_reduced(5ull << 30);
  for (int rank = 0; rank < 2; ++rank) {
    v1::Rank* added = job->add_ranks();
    added->mutable_process()->set_rank(rank);
    added->mutable_process()->set_pid(4700 + rank);
    added->mutable_process()->set_host("hostA");
    added->set_state("running");
    added->set_direct(90000 + rank);
    added->set_submitted(601);
    added->set_completed(600);
    added->set_arena_bytes(1 << 20);
  }
  return job;
}

v1::GetStatusResponse healthyStatus() {
  v1::GetStatusResponse response;
  response.mutable_daemon()->set_version("0.1.0");
  response.mutable_daemon()->set_pid(321);
  response.mutable_daemon()->set_socket("/run/rueda/rueda.sock");
  response.mutable_daemon()->set_uptime_ms(7'380'000);
  response.mutable_daemon()->set_threads(9);
  response.mutable_daemon()->set_open_fds(31);
  response.mutable_memory()->set_resident_bytes(43 << 20);
  response.mutable_memory()->set_shared_bytes(3ull << 30);
  response.mutable_counters()->set_sessions_accepted(12);
  response.mutable_counters()->set_sessions_rejected(1);
  response.mutable_counters()->set_ranks_lost(2);
  for (const char* name : {"ipc", "engine"}) {
    response.add_health()->set_name(name);
    response.mutable_health()->rbegin()->set_serving(true);
  }
  addJob(response.mutable_jobs(), "train-7");
  return response;
}

}  // namespace

TEST_CASE("status shows the daemon and its jobs on one page") {
  CHECK(renderStatus(healthyStatus()) ==
        "ruedad 0.1.0, pid 321, up 2h 03m\n"
        "socket    /run/rueda/rueda.sock\n"
        "memory    43.0 MiB resident, 3.0 GiB shared with ranks\n"
        "sessions  12 accepted, 1 rejected, 2 ranks lost\n"
        "process   9 threads, 31 open descriptors\n"
        "health    all parts serve\n"
        "\n"
        "JOB      UID   RANKS  STATE    PENDING  OLDEST  DIRECT  DONE  FAILED  REDUCED\n"
        "train-7  1000  2/2    running  0        -       90000   1200  0       5.0 GiB\n");
}

TEST_CASE("status names what does not serve and that it drains") {
  v1::GetStatusResponse response = healthyStatus();
  response.mutable_daemon()->set_draining(true);
  response.mutable_health(1)->set_serving(false);
  response.mutable_health(1)->set_reason("no cycle for 3 s");
  response.mutable_jobs()->clear_jobs();
  const std::string text = renderStatus(response);
  CHECK_THAT(text, Catch::Contains("up 2h 03m, DRAINING: no new jobs\n"));
  CHECK_THAT(text, Catch::Contains("health    engine NOT SERVING: no cycle for 3 s\n"));
  CHECK_THAT(text, Catch::EndsWith("\n\nno jobs\n"));
}

TEST_CASE("jobs shows each rank with its process") {
  v1::ListJobsResponse response;
  v1::Job* job = addJob(&response, "train-7");
  job->set_state("failed");
  job->set_failure("rank 1 on hostA (pid 4701) was killed by signal 9");
  job->set_pending_operations(3);
  job->set_oldest_pending_ms(12'340);
  job->mutable_ranks(1)->set_state("lost");
  job->mutable_ranks(0)->set_stopped(true);
  response.set_omitted(2);
  CHECK(renderJobs(response) ==
        "JOB      UID   RANKS  STATE   PENDING  OLDEST  DIRECT  DONE  FAILED  REDUCED\n"
        "train-7  1000  2/2    failed  3        12.3 s  90000   1200  0       5.0 GiB\n"
        "and 2 more jobs\n"
        "\n"
        "job train-7: failed, generation 4\n"
        "failure: rank 1 on hostA (pid 4701) was killed by signal 9\n"
        "RANK  PID   HOST   STATE             DIRECT  SUBMITTED  COMPLETED  ARENA\n"
        "0     4700  hostA  running, stopped  90000   601        600        1.0 MiB\n"
        "1     4701  hostA  lost              90001   601        600        1.0 MiB\n");
}

TEST_CASE("pending says in its first line which rank is stuck") {
  CHECK(renderPending(stuckOnStoppedRank()) ==
        "job train-7 waits for rank 2 (pid 4702 on hostA, stopped): "
        "missing in 2 of 2 operations, oldest 12.3 s\n"
        "job train-7 waits for rank 1 (pid 4701 on hostA): "
        "missing in 1 of 2 operations, oldest 800 ms\n"
        "JOB      OP         NAME           AGE     PRESENT  MISSING\n"
        "train-7  allreduce  layer1.weight  12.3 s  0-1      2 (pid 4702 on hostA, stopped)\n"
        "train-7  allreduce  l2             800 ms  0        1 (pid 4701 on hostA), "
        "2 (pid 4702 on hostA, stopped)\n");
}

TEST_CASE("pending says so when there is nothing") {
  CHECK(renderPending({}) == "nothing pending\n");
}

TEST_CASE("pending tells a deadlock, a stopped present rank and one that never came") {
  v1::ListPendingResponse response;
  addPending(&response, "x", 100, {0, 2}, {1});
  response.mutable_operations(0)->add_stopped(2);
  addWaited(&response, 1, 0, 1);
  addPendingJob(&response, 1)->set_deadlocked(true);
  CHECK(renderPending(response) ==
        "job train-7 is DEADLOCKED: every rank blocks on an operation that another rank lacks\n"
        "job train-7 waits for rank 1 (not connected): missing in 1 of 1 operation, oldest 12.3 s\n"
        "JOB      OP         NAME  AGE     PRESENT           MISSING\n"
        "train-7  allreduce  x     100 ms  0,2 (stopped: 2)  1 (not connected)\n");
}

TEST_CASE("pending is bounded and counts the rest") {
  v1::ListPendingResponse response;
  for (int i = 0; i < 60; ++i) addPending(&response, "op" + std::to_string(i), 100, {0}, {1});
  for (int rank = 1; rank < 13; ++rank) addWaited(&response, rank, 4700 + rank, 60);
  addPendingJob(&response, 1060);
  response.set_omitted(1000);
  const std::string text = renderPending(response);
  CHECK(std::count(text.begin(), text.end(), '\n') == 10 + 1 + 1 + 50 + 1);
  CHECK_THAT(text, Catch::Contains("\nand 2 more waited-for ranks\n"));
  CHECK_THAT(text, Catch::EndsWith("\nand 1010 more operations\n"));
}

TEST_CASE("an operation that misses many ranks stays one line") {
  v1::ListPendingResponse response;
  std::vector<int> missing;
  for (int rank = 1; rank < 512; ++rank) missing.push_back(rank);
  addPending(&response, "x", 100, {0}, missing);
  CHECK_THAT(renderPending(response), Catch::EndsWith("  1, 2, 3, 4, and 5-511\n"));
}

TEST_CASE("health lists parts and jobs in trouble") {
  v1::GetStatusResponse response = healthyStatus();
  CHECK(isHealthy(response));
  CHECK(renderHealth(response) ==
        "healthy\n"
        "PART    STATE    REASON\n"
        "ipc     serving\n"
        "engine  serving\n");
  SECTION("a part") {
    response.mutable_health(0)->set_serving(false);
    response.mutable_health(0)->set_reason("out of descriptors");
    CHECK_FALSE(isHealthy(response));
    CHECK(renderHealth(response) ==
          "UNHEALTHY\n"
          "PART    STATE        REASON\n"
          "ipc     NOT SERVING  out of descriptors\n"
          "engine  serving\n");
  }
  SECTION("a failed job") {
    response.mutable_jobs()->mutable_jobs(0)->set_state("failed");
    response.mutable_jobs()->mutable_jobs(0)->set_failure("rank 1 was lost");
    CHECK_FALSE(isHealthy(response));
    CHECK_THAT(renderHealth(response), Catch::EndsWith("\njob train-7 failed: rank 1 was lost\n"));
  }
  SECTION("a deadlocked job") {
    response.mutable_jobs()->mutable_jobs(0)->set_deadlocked(true);
    CHECK_FALSE(isHealthy(response));
    CHECK_THAT(renderHealth(response),
               Catch::EndsWith("\njob train-7 is DEADLOCKED; see ruedactl pending\n"));
  }
  SECTION("draining alone is not a fault") {
    response.mutable_daemon()->set_draining(true);
    CHECK(isHealthy(response));
    CHECK_THAT(renderHealth(response), Catch::StartsWith("healthy, draining\n"));
  }
}

TEST_CASE("texts of training processes cannot steer the terminal") {
  v1::ListPendingResponse response;
  addPending(&response, "\x1b[2Jx\n", 100, {0}, {1});
  addWaited(&response, 1, 7, 1)->mutable_process()->set_host("\x1b]0;h");
  const std::string text = renderPending(response);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK_THAT(text, Catch::Contains("\\x1b[2Jx\\x0a"));
}

TEST_CASE("JSON of status has stable names and plain numbers") {
  v1::GetStatusResponse response = healthyStatus();
  *response.mutable_pending() = stuckOnStoppedRank();
  const json parsed = json::parse(jsonStatus(response));
  CHECK(parsed["daemon"] == json{{"version", "0.1.0"},
                                 {"pid", 321},
                                 {"socket", "/run/rueda/rueda.sock"},
                                 {"uptime_ms", 7'380'000},
                                 {"draining", false},
                                 {"open_fds", 31},
                                 {"threads", 9}});
  CHECK(parsed["memory"] == json{{"resident_bytes", 43 << 20}, {"shared_bytes", 3ull << 30}});
  CHECK(parsed["counters"] ==
        json{{"sessions_accepted", 12}, {"sessions_rejected", 1}, {"ranks_lost", 2}});
  CHECK(parsed["health"][0] == json{{"name", "ipc"}, {"serving", true}, {"reason", ""}});
  CHECK(parsed["jobs_omitted"] == 0);
  CHECK(parsed["pending"]["operations"].size() == 2);
}

TEST_CASE("JSON of jobs and pending carries what the tables do, uncut") {
  v1::ListJobsResponse jobs;
  addJob(&jobs, "train-7");
  const json job = json::parse(jsonJobs(jobs))["jobs"][0];
  CHECK(job["id"] == "train-7");
  CHECK(job["bytes_reduced"] == 5ull << 30);
  CHECK(job["deadlocked"] == false);
  CHECK(job["ranks"][1] == json{{"rank", 1},
                                {"pid", 4701},
                                {"host", "hostA"},
                                {"state", "running"},
                                {"stopped", false},
                                {"arena_bytes", 1 << 20},
                                {"direct", 90001},
                                {"submitted", 601},
                                {"completed", 600}});

  const json pending = json::parse(jsonPending(stuckOnStoppedRank()));
  CHECK(pending["operations"][1] == json{{"job_id", "train-7"},
                                         {"kind", "allreduce"},
                                         {"name", "l2"},
                                         {"process_set", 0},
                                         {"dtype", "float32"},
                                         {"shape", "[3, 4]"},
                                         {"age_ms", 800},
                                         {"present", {0}},
                                         {"missing", {1, 2}},
                                         {"stopped", {2}}});
  CHECK(pending["waited_for"][0] == json{{"job_id", "train-7"},
                                         {"rank", 2},
                                         {"pid", 4702},
                                         {"host", "hostA"},
                                         {"stopped", true},
                                         {"operations", 2},
                                         {"oldest_ms", 12'340}});
  CHECK(pending["jobs"][0]["operations"] == 2);
  CHECK(json::parse(jsonPending({}))["operations"] == json::array());
}

TEST_CASE("JSON of health lists jobs in trouble") {
  v1::GetStatusResponse response = healthyStatus();
  response.mutable_jobs()->mutable_jobs(0)->set_state("failed");
  response.mutable_jobs()->mutable_jobs(0)->set_failure("rank 1 was lost");
  response.mutable_jobs()->mutable_jobs(0)->set_deadlocked(true);
  const json parsed = json::parse(jsonHealth(response));
  CHECK(parsed["healthy"] == false);
  CHECK(parsed["failed_jobs"] ==
        json::array({{{"id", "train-7"}, {"failure", "rank 1 was lost"}}}));
  CHECK(parsed["deadlocked_jobs"] == json::array({"train-7"}));
}
