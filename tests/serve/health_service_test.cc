// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/health_service.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <vector>

#include "daemon/serve/grpc_server.h"
#include "proto/health.grpc.pb.h"
#include "tests/serve/serve_kit.h"

namespace {

using namespace std::chrono_literals;
namespace wire = grpc::health::v1;
using rueda::flow::StateView;
using rueda::serve::GrpcServer;
using rueda::serve::GrpcServerOptions;
using rueda::serve::Health;
using rueda::serve::healthOf;
using rueda::serve::test::FakeEngine;
using rueda::serve::test::privateName;
using rueda::serve::test::stuckJobView;
using rueda::shm::Code;
using rueda::shm::Status;

StateView memoryShort() {
  StateView view = stuckJobView();
  view.health[3].serving = false;
  view.health[3].reason = "no memory for segments";
  return view;
}

class Fixture {
 public:
  Fixture() {
    engine.set(stuckJobView());
    GrpcServerOptions options;
    options.unixAddress = "unix-abstract:" + privateName("health");
    options.snapshots.timeout = 20ms;
    options.snapshots.maxAge = 0ms;
    options.watchInterval = 1ms;
    auto started = GrpcServer::start(engine, options);
    if (!started.isOk()) throw std::runtime_error(started.status().message());
    server = std::move(started).value();
    stub = wire::Health::NewStub(
        grpc::CreateChannel(options.unixAddress, grpc::InsecureChannelCredentials()));
  }

  wire::HealthCheckResponse::ServingStatus check(const std::string& service) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 30s);
    wire::HealthCheckRequest request;
    request.set_service(service);
    wire::HealthCheckResponse response;
    last = stub->Check(&context, request, &response);
    return response.status();
  }

  FakeEngine engine;
  std::unique_ptr<GrpcServer> server;
  std::unique_ptr<wire::Health::Stub> stub;
  grpc::Status last;
};

}  // namespace

TEST_CASE("overall health is that of the worst part") {
  CHECK(healthOf(stuckJobView(), "") == Health::kServing);
  CHECK(healthOf(memoryShort(), "") == Health::kNotServing);
  CHECK(healthOf(memoryShort(), "rueda.v1.Status") == Health::kNotServing);
  CHECK(healthOf(memoryShort(), "memory") == Health::kNotServing);
  CHECK(healthOf(memoryShort(), "workers") == Health::kServing);
  CHECK(healthOf(memoryShort(), "disk") == Health::kNoSuchService);
}

TEST_CASE("without an answer of the engine nothing is called healthy") {
  const Status silent(Code::kDeadlineExceeded, "the engine did not answer within 500 ms");
  CHECK(healthOf(silent, "") == Health::kNotServing);
  CHECK(healthOf(silent, "rueda.v1.Status") == Health::kNotServing);
  CHECK(healthOf(silent, "engine") == Health::kNotServing);
  CHECK(healthOf(silent, "ipc") == Health::kUnknown);
  CHECK(healthOf(silent, "disk") == Health::kNoSuchService);
}

TEST_CASE("check answers with the state at the moment of the question") {
  Fixture fixture;
  CHECK(fixture.check("") == wire::HealthCheckResponse::SERVING);
  fixture.engine.set(memoryShort());
  CHECK(fixture.check("") == wire::HealthCheckResponse::NOT_SERVING);
  CHECK(fixture.check("memory") == wire::HealthCheckResponse::NOT_SERVING);
  CHECK(fixture.check("ipc") == wire::HealthCheckResponse::SERVING);
  fixture.engine.setStuck(true);
  CHECK(fixture.check("engine") == wire::HealthCheckResponse::NOT_SERVING);
  CHECK(fixture.check("ipc") == wire::HealthCheckResponse::UNKNOWN);
  CHECK(fixture.last.ok());
  fixture.check("disk");
  CHECK(fixture.last.error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("watch tells the state now and each change, once") {
  Fixture fixture;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 30s);
  wire::HealthCheckRequest request;
  auto reader = fixture.stub->Watch(&context, request);
  wire::HealthCheckResponse response;
  REQUIRE(reader->Read(&response));
  CHECK(response.status() == wire::HealthCheckResponse::SERVING);
  // Many more looks without a change must not be told.
  while (fixture.engine.snapshots() < 10) std::this_thread::yield();
  fixture.engine.set(memoryShort());
  REQUIRE(reader->Read(&response));
  CHECK(response.status() == wire::HealthCheckResponse::NOT_SERVING);
  fixture.engine.set(stuckJobView());
  REQUIRE(reader->Read(&response));
  CHECK(response.status() == wire::HealthCheckResponse::SERVING);
  context.TryCancel();
  CHECK_FALSE(reader->Read(&response));
  CHECK(reader->Finish().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("watch of an unknown service stays open and says so") {
  Fixture fixture;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 30s);
  wire::HealthCheckRequest request;
  request.set_service("disk");
  auto reader = fixture.stub->Watch(&context, request);
  wire::HealthCheckResponse response;
  REQUIRE(reader->Read(&response));
  CHECK(response.status() == wire::HealthCheckResponse::SERVICE_UNKNOWN);
  context.TryCancel();
  reader->Finish();
}

TEST_CASE("watchers are bounded, and their places come free") {
  Fixture fixture;
  struct Watch {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<wire::HealthCheckResponse>> reader;
  };
  std::vector<std::unique_ptr<Watch>> watches;
  wire::HealthCheckResponse response;
  const auto open = [&] {
    watches.push_back(std::make_unique<Watch>());
    watches.back()->context.set_deadline(std::chrono::system_clock::now() + 30s);
    watches.back()->reader = fixture.stub->Watch(&watches.back()->context, {});
    return watches.back()->reader->Read(&response);
  };
  for (int i = 0; i < 63; ++i) REQUIRE(open());
  // A second connection, since one carries 64 streams.
  auto other = wire::Health::NewStub(grpc::CreateCustomChannel(
      "unix-abstract:" + privateName("health"), grpc::InsecureChannelCredentials(), [] {
        grpc::ChannelArguments arguments;
        arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
        return arguments;
      }()));
  std::swap(other, fixture.stub);
  REQUIRE(open());
  CHECK_FALSE(open());
  CHECK(watches.back()->reader->Finish().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  watches[0]->context.TryCancel();
  CHECK_FALSE(watches[0]->reader->Read(&response));
  // The place is free once the server has noticed; until then it refuses.
  while (!open()) watches.back()->reader->Finish();
  for (auto& watch : watches) watch->context.TryCancel();
}
