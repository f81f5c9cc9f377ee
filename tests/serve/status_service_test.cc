// SPDX-License-Identifier: Apache-2.0
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>

#include "daemon/serve/grpc_server.h"
#include "proto/status.grpc.pb.h"
#include "tests/serve/serve_kit.h"

namespace {

namespace v1 = rueda::v1;
using rueda::flow::StateView;
using rueda::serve::GrpcServer;
using rueda::serve::GrpcServerOptions;
using rueda::serve::test::FakeEngine;
using rueda::serve::test::privateName;
using rueda::serve::test::stuckJobView;

// A server over a fake engine, and a stub that talks to it.
class Fixture {
 public:
  explicit Fixture(StateView view) {
    engine.set(std::move(view));
    GrpcServerOptions options;
    options.unixAddress = "unix-abstract:" + privateName("service");
    auto started = GrpcServer::start(engine, options);
    if (!started.isOk()) throw std::runtime_error(started.status().message());
    server = std::move(started).value();
    stub = v1::Status::NewStub(
        grpc::CreateChannel(options.unixAddress, grpc::InsecureChannelCredentials()));
  }

  v1::GetStatusResponse status(const std::string& job = "") {
    return call<v1::GetStatusRequest, v1::GetStatusResponse>(&v1::Status::Stub::GetStatus, job);
  }
  v1::ListPendingResponse pending(const std::string& job = "") {
    return call<v1::ListPendingRequest, v1::ListPendingResponse>(&v1::Status::Stub::ListPending,
                                                                 job);
  }
  v1::ListJobsResponse jobs(const std::string& job = "") {
    return call<v1::ListJobsRequest, v1::ListJobsResponse>(&v1::Status::Stub::ListJobs, job);
  }

  template <typename Request, typename Response>
  Response call(grpc::Status (v1::Status::Stub::*method)(grpc::ClientContext*, const Request&,
                                                         Response*),
                const std::string& job) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    Request request;
    request.set_job_id(job);
    Response response;
    last = ((*stub).*method)(&context, request, &response);
    return response;
  }

  FakeEngine engine;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<v1::Status::Stub> stub;
  grpc::Status last;
};

StateView viewOfManyOperations(size_t count, size_t nameBytes) {
  StateView view = stuckJobView();
  view.jobs[0].pending.clear();
  for (size_t i = 0; i < count; ++i) {
    std::string name = std::to_string(i);
    name.resize(nameBytes, 'x');
    view.jobs[0].pending.push_back({name, "allreduce", "float32", "[1]", {0, 1}, {2}, {}, i});
  }
  return view;
}

}  // namespace

TEST_CASE("status carries every field of the snapshot") {
  Fixture fixture(stuckJobView());
  const v1::GetStatusResponse response = fixture.status();
  REQUIRE(fixture.last.ok());
  const v1::Daemon& daemon = response.daemon();
  CHECK(daemon.version() == "0.1.0");
  CHECK(daemon.pid() == 321);
  CHECK(daemon.socket() == "/run/rueda/rueda.sock");
  CHECK(daemon.uptime_ms() == 7'380'000);
  CHECK_FALSE(daemon.draining());
  CHECK(daemon.open_fds() == 31);
  CHECK(daemon.threads() == 9);
  CHECK(response.memory().resident_bytes() == 43 << 20);
  CHECK(response.memory().shared_bytes() == 3ull << 30);
  CHECK(response.counters().sessions_accepted() == 12);
  CHECK(response.counters().sessions_rejected() == 1);
  CHECK(response.counters().ranks_lost() == 2);
  REQUIRE(response.health_size() == 4);
  CHECK(response.health(0).name() == "ipc");
  CHECK(response.health(0).serving());
  CHECK(response.jobs().jobs_size() == 1);
  CHECK(response.pending().operations_size() == 2);
}

TEST_CASE("a job comes with its ranks and what it waits for") {
  Fixture fixture(stuckJobView());
  const v1::ListJobsResponse response = fixture.jobs();
  REQUIRE(fixture.last.ok());
  REQUIRE(response.jobs_size() == 1);
  const v1::Job& job = response.jobs(0);
  CHECK(job.id() == "train-7");
  CHECK(job.uid() == 1000);
  CHECK(job.size() == 3);
  CHECK(job.generation() == 4);
  CHECK(job.state() == "running");
  CHECK(job.pending_operations() == 2);
  CHECK(job.oldest_pending_ms() == 12'340);
  CHECK(job.ops_completed() == 1200);
  CHECK(job.ops_direct() == 90000);
  CHECK(job.ops_failed() == 1);
  CHECK(job.bytes_reduced() == 5'000'000'000);
  REQUIRE(job.ranks_size() == 3);
  CHECK(job.ranks(2).process().rank() == 2);
  CHECK(job.ranks(2).process().pid() == 4702);
  CHECK(job.ranks(2).process().host() == "hostA");
  CHECK(job.ranks(2).stopped());
  CHECK_FALSE(job.ranks(1).stopped());
  CHECK(job.ranks(1).submitted() == 601);
  CHECK(job.ranks(1).direct() == 90000);
  CHECK(job.ranks(1).completed() == 600);
  CHECK(job.ranks(1).arena_bytes() == 1 << 20);
}

TEST_CASE("pending lists the oldest operation first and the most waited-for rank first") {
  StateView view = stuckJobView();
  std::swap(view.jobs[0].pending[0], view.jobs[0].pending[1]);
  Fixture fixture(view);
  const v1::ListPendingResponse response = fixture.pending();
  REQUIRE(response.operations_size() == 2);
  const v1::PendingOperation& op = response.operations(0);
  CHECK(op.job_id() == "train-7");
  CHECK(op.name() == "layer1.weight");
  CHECK(op.kind() == "allreduce");
  CHECK(op.dtype() == "float32");
  CHECK(op.shape() == "[3, 4]");
  CHECK(op.age_ms() == 12'340);
  CHECK(std::vector<int>(op.present().begin(), op.present().end()) == std::vector<int>{0, 1});
  CHECK(std::vector<int>(op.missing().begin(), op.missing().end()) == std::vector<int>{2});
  CHECK(std::vector<int>(op.stopped().begin(), op.stopped().end()) == std::vector<int>{2});
  REQUIRE(response.waited_for_size() == 2);
  CHECK(response.waited_for(0).process().rank() == 2);
  CHECK(response.waited_for(0).process().pid() == 4702);
  CHECK(response.waited_for(0).stopped());
  CHECK(response.waited_for(0).operations() == 2);
  CHECK(response.waited_for(0).oldest_ms() == 12'340);
  CHECK(response.waited_for(1).process().rank() == 1);
  CHECK(response.waited_for(1).operations() == 1);
  REQUIRE(response.jobs_size() == 1);
  CHECK(response.jobs(0).operations() == 2);
}

TEST_CASE("a rank that never connected is waited for without a process") {
  StateView view = stuckJobView();
  view.jobs[0].ranks.pop_back();
  Fixture fixture(view);
  const v1::ListPendingResponse response = fixture.pending();
  REQUIRE(response.waited_for_size() == 2);
  CHECK(response.waited_for(0).process().rank() == 2);
  CHECK(response.waited_for(0).process().pid() == 0);
}

TEST_CASE("the job filter selects one job or says that there is none") {
  StateView view = stuckJobView();
  view.jobs.push_back(view.jobs[0]);
  view.jobs[1].id = "other";
  Fixture fixture(view);
  CHECK(fixture.jobs().jobs_size() == 2);
  const v1::GetStatusResponse one = fixture.status("other");
  REQUIRE(one.jobs().jobs_size() == 1);
  CHECK(one.jobs().jobs(0).id() == "other");
  CHECK(one.pending().operations_size() == 2);
  CHECK(one.pending().waited_for_size() == 2);
  fixture.pending("nope");
  CHECK(fixture.last.error_code() == grpc::StatusCode::NOT_FOUND);
  CHECK(fixture.last.error_message() == "no job \"nope\"");
}

TEST_CASE("names with broken UTF-8 do not spoil the answer") {
  StateView view = stuckJobView();
  view.jobs[0].id = "job\xff";
  view.jobs[0].pending[0].name = "a\xc0\xaf";
  view.jobs[0].failure = "\x80";
  view.jobs[0].ranks[2].host = "h\xfe";
  Fixture fixture(view);
  const v1::GetStatusResponse response = fixture.status();
  REQUIRE(fixture.last.ok());
  CHECK(response.jobs().jobs(0).id() == "job\\xff");
  CHECK(response.jobs().jobs(0).failure() == "\\x80");
  CHECK(response.jobs().jobs(0).ranks(2).process().host() == "h\\xfe");
  CHECK(response.pending().operations(0).name() == "a\\xc0\\xaf");
}

TEST_CASE("an answer stays below gRPC's limit and counts what it leaves out") {
  constexpr size_t kCount = 16'384;  // As many as one rank may have in flight.
  Fixture fixture(viewOfManyOperations(kCount, 1024));
  const v1::GetStatusResponse response = fixture.status();
  REQUIRE(fixture.last.ok());
  CHECK(response.ByteSizeLong() < 1 << 20);
  const v1::ListPendingResponse& pending = response.pending();
  CHECK(pending.operations_size() > 500);
  CHECK(pending.operations_size() + pending.omitted() == kCount);
  CHECK(pending.operations(0).age_ms() == kCount - 1);
  REQUIRE(pending.waited_for_size() == 1);
  CHECK(pending.waited_for(0).operations() == kCount);
}

// gRPC's library used to sleep for up to 10 s in its own shutdown after a large answer.
TEST_CASE("a server ends at once after large answers") {
  for (int i = 0; i < 10; ++i) {
    auto fixture = std::make_unique<Fixture>(viewOfManyOperations(16'384, 64));
    fixture->status();
    REQUIRE(fixture->last.ok());
    const auto begin = std::chrono::steady_clock::now();
    fixture.reset();
    REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
  }
}

TEST_CASE("many jobs stay below gRPC's limit too") {
  StateView view = stuckJobView();
  view.jobs.resize(3000, view.jobs[0]);
  for (auto& job : view.jobs) job.failure.assign(1000, 'f');
  Fixture fixture(view);
  const v1::GetStatusResponse response = fixture.status();
  REQUIRE(fixture.last.ok());
  CHECK(response.ByteSizeLong() < 1 << 20);
  CHECK(response.jobs().jobs_size() + response.jobs().omitted() == 3000);
  CHECK(response.jobs().omitted() > 0);
}
