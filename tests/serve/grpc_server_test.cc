// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/grpc_server.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <future>
#include <thread>
#include <vector>

#include "proto/health.grpc.pb.h"
#include "proto/status.grpc.pb.h"
#include "tests/serve/serve_kit.h"

namespace {

using namespace std::chrono_literals;
namespace v1 = rueda::v1;
using rueda::serve::GrpcServer;
using rueda::serve::GrpcServerOptions;
using rueda::serve::test::FakeEngine;
using rueda::serve::test::privateName;
using rueda::serve::test::stuckJobView;
using rueda::serve::test::TempDir;
using rueda::shm::Code;

GrpcServerOptions abstractOptions() {
  GrpcServerOptions options;
  options.unixAddress = "unix-abstract:" + privateName("server");
  return options;
}

std::unique_ptr<GrpcServer> startOrThrow(FakeEngine* engine, const GrpcServerOptions& options) {
  auto started = GrpcServer::start(*engine, options);
  if (!started.isOk()) throw std::runtime_error(started.status().toString());
  return std::move(started).value();
}

// A channel with a connection of its own: by default gRPC shares connections between channels.
std::shared_ptr<grpc::Channel> connectTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

struct Reply {
  grpc::Status status;
  v1::GetStatusResponse response;
};

// One whole client: connection, call, answer. Any thread.
Reply getStatus(const std::string& address, std::chrono::milliseconds deadline = 30s) {
  const auto stub = v1::Status::NewStub(connectTo(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline);
  Reply reply;
  reply.status = stub->GetStatus(&context, {}, &reply.response);
  return reply;
}

// The bytes that server reflection answers to "list_services" (field 7, empty).
std::string listServices(const std::string& address) {
  grpc::GenericStub stub(connectTo(address));
  grpc::CompletionQueue queue;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 30s);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  call->StartCall(nullptr);
  bool ok = wait();
  const grpc::Slice question(std::string("\x3a\x00", 2));
  call->Write(grpc::ByteBuffer(&question, 1), nullptr);
  ok = wait() && ok;
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ok = wait() && ok;
  grpc::Status status;
  context.TryCancel();
  call->Finish(&status, nullptr);
  wait();
  grpc::Slice bytes;
  if (!ok || !answer.DumpToSingleSlice(&bytes).ok()) return "no answer";
  return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
}

}  // namespace

TEST_CASE("serves over a Unix socket file with the mode of its group") {
  FakeEngine engine;
  engine.set(stuckJobView());
  const TempDir dir;
  GrpcServerOptions options;
  options.unixAddress = "unix:" + dir.file("status.sock");
  const auto server = startOrThrow(&engine, options);
  struct stat info {};
  REQUIRE(lstat(dir.file("status.sock").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0660);
  const Reply reply = getStatus(options.unixAddress);
  CHECK(reply.status.ok());
  CHECK(reply.response.daemon().pid() == 321);
  server->stop();
  CHECK(lstat(dir.file("status.sock").c_str(), &info) != 0);
}

TEST_CASE("serves over an abstract socket and TCP at once") {
  FakeEngine engine;
  engine.set(stuckJobView());
  GrpcServerOptions options = abstractOptions();
  options.tcpAddress = "127.0.0.1:0";
  const auto server = startOrThrow(&engine, options);
  CHECK(getStatus(options.unixAddress).status.ok());
  CHECK(getStatus("127.0.0.1:" + std::to_string(server->tcpPort())).status.ok());
}

TEST_CASE("an address in use is an error that names it, and its owner goes on") {
  FakeEngine engine;
  GrpcServerOptions options = abstractOptions();
  options.tcpAddress = "127.0.0.1:0";
  const auto first = startOrThrow(&engine, options);
  SECTION("the Unix socket") {
    const auto second = GrpcServer::start(engine, options);
    REQUIRE_FALSE(second.isOk());
    CHECK(second.status().code() == Code::kAlreadyExists);
    CHECK(second.status().message() == "status socket @" + privateName("server") + " is in use");
  }
  SECTION("the TCP port; the Unix socket of the attempt is free again") {
    GrpcServerOptions other = options;
    other.unixAddress += "-other";
    other.tcpAddress = "127.0.0.1:" + std::to_string(first->tcpPort());
    CHECK(GrpcServer::start(engine, other).status().code() == Code::kAlreadyExists);
    other.tcpAddress.clear();
    CHECK(GrpcServer::start(engine, other).isOk());
  }
  CHECK(getStatus(options.unixAddress).status.ok());
}

TEST_CASE("TCP beyond loopback needs the explicit option") {
  FakeEngine engine;
  GrpcServerOptions options = abstractOptions();
  options.tcpAddress = "0.0.0.0:0";
  CHECK(GrpcServer::start(engine, options).status().code() == Code::kPermissionDenied);
  options.insecureTcp = true;
  CHECK(GrpcServer::start(engine, options).isOk());
}

TEST_CASE("reflection lists the services") {
  FakeEngine engine;
  const GrpcServerOptions options = abstractOptions();
  const auto server = startOrThrow(&engine, options);
  const std::string services = listServices(options.unixAddress);
  CHECK_THAT(services, Catch::Contains("rueda.v1.Status"));
  CHECK_THAT(services, Catch::Contains("grpc.health.v1.Health"));
}

TEST_CASE("two hundred clients at once cost the engine one snapshot") {
  FakeEngine engine;
  engine.set(stuckJobView());
  GrpcServerOptions options = abstractOptions();
  options.snapshots.maxAge = 1h;
  const auto server = startOrThrow(&engine, options);
  std::vector<std::future<bool>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::async(std::launch::async, [&options] {
      const Reply reply = getStatus(options.unixAddress);
      return reply.status.ok() && reply.response.jobs().jobs_size() == 1;
    }));
  }
  int answered = 0;
  for (auto& client : clients) answered += client.get() ? 1 : 0;
  CHECK(answered == 200);
  CHECK(engine.snapshots() == 1);
}

TEST_CASE("a stuck engine is named within the snapshot's timeout") {
  FakeEngine engine;
  engine.setStuck(true);
  GrpcServerOptions options = abstractOptions();
  options.snapshots.timeout = 50ms;
  const auto server = startOrThrow(&engine, options);
  const Reply reply = getStatus(options.unixAddress);
  CHECK(reply.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  CHECK(reply.status.error_message() == "the engine did not answer within 50 ms");
  engine.setStuck(false);
  // The failure may still be fresh; the next answer is not.
  while (!getStatus(options.unixAddress).status.ok()) std::this_thread::yield();
}

TEST_CASE("a caller that gives up first harms nobody") {
  FakeEngine engine;
  engine.set(stuckJobView());
  engine.setStuck(true);
  GrpcServerOptions options = abstractOptions();
  options.snapshots.timeout = 1h;
  const auto server = startOrThrow(&engine, options);
  CHECK(getStatus(options.unixAddress, 50ms).status.error_code() ==
        grpc::StatusCode::DEADLINE_EXCEEDED);
  engine.setStuck(false);
  CHECK(getStatus(options.unixAddress).status.ok());
}

TEST_CASE("stop answers calls that wait, ends streams and is bounded") {
  FakeEngine engine;
  engine.setStuck(true);
  GrpcServerOptions options = abstractOptions();
  options.snapshots.timeout = 200ms;
  options.shutdownGrace = 50ms;
  const auto server = startOrThrow(&engine, options);
  auto first = std::async(std::launch::async, [&] { return getStatus(options.unixAddress); });
  while (engine.snapshots() == 0) std::this_thread::yield();
  grpc::ClientContext context;
  const auto health = grpc::health::v1::Health::NewStub(connectTo(options.unixAddress));
  const auto watch = health->Watch(&context, {});
  const auto begin = std::chrono::steady_clock::now();
  server->stop();
  // Sanitizers and busy machines included; without a bound the watch alone would last for ever.
  CHECK(std::chrono::steady_clock::now() - begin < 20s);
  CHECK_FALSE(first.get().status.ok());
  CHECK_FALSE(watch->Finish().ok());
  CHECK(getStatus(options.unixAddress).status.error_code() == grpc::StatusCode::UNAVAILABLE);
  server->stop();
}

TEST_CASE("servers come and go in one process") {
  FakeEngine engine;
  const GrpcServerOptions options = abstractOptions();
  for (int i = 0; i < 20; ++i) {
    const auto server = startOrThrow(&engine, options);
    REQUIRE(getStatus(options.unixAddress).status.ok());
  }
}

TEST_CASE("a request above the size limit is refused and the server goes on") {
  FakeEngine engine;
  const GrpcServerOptions options = abstractOptions();
  const auto server = startOrThrow(&engine, options);
  const auto stub = v1::Status::NewStub(connectTo(options.unixAddress));
  grpc::ClientContext context;
  v1::GetStatusRequest request;
  request.set_job_id(std::string(2 << 20, 'x'));
  v1::GetStatusResponse response;
  CHECK(stub->GetStatus(&context, request, &response).error_code() ==
        grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(getStatus(options.unixAddress).status.ok());
}
