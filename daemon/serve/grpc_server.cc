// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/grpc_server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <utility>
#include <vector>

#include "daemon/serve/accept_loop.h"
#include "daemon/serve/health_service.h"
#include "daemon/serve/listen_socket.h"
#include "daemon/serve/status_service.h"

namespace rueda::serve {
namespace {

using grpc::experimental::ExternalConnectionAcceptor;

// proto/README.md names the first two; lists in answers are cut to fit (status_service.cc).
constexpr int kMaxMessageBytes = 1 << 20;
constexpr int kMaxStreamsPerConnection = 64;
// Buffers of all connections; gRPC sheds load beyond it. 64 answers of the largest size.
constexpr size_t kMaxBufferBytes = 64 << 20;
// Threads for calls that block, which are reflection only: the pollers and two calls.
constexpr int kMaxSyncThreads = 4;
// A prober that went away without closing gives its descriptor back.
constexpr int kIdleConnectionMs = 5 * 60 * 1000;

void setLimits(grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("rueda-status");
  quota.Resize(kMaxBufferBytes);
  quota.SetMaxThreads(kMaxSyncThreads);
  builder->SetResourceQuota(quota);
  builder->SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder->SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  builder->SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder->SetMaxSendMessageSize(kMaxMessageBytes);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleConnectionMs);
}

shm::Result<std::vector<ListenSocket>> listenAll(const GrpcServerOptions& options, int* tcpPort,
                                                 bool* tcpFailed) {
  std::vector<ListenSocket> sockets;
  RUEDA_ASSIGN_OR_RETURN(ListenSocket unixSocket,
                         ListenSocket::unixSocket(options.unixAddress, options.socketMode));
  sockets.push_back(std::move(unixSocket));
  if (!options.tcpAddress.empty()) {
    auto opened = ListenSocket::tcp(options.tcpAddress, options.insecureTcp);
    if (tcpFailed != nullptr) *tcpFailed = !opened.isOk();
    RUEDA_ASSIGN_OR_RETURN(ListenSocket tcp, std::move(opened));
    *tcpPort = tcp.port();
    sockets.push_back(std::move(tcp));
  }
  return sockets;
}

}  // namespace

// In order of construction; stop() goes the other way round.
struct GrpcServer::Parts {
  Parts(flow::EnginePort& engine, const GrpcServerOptions& options)
      : shutdownGrace(options.shutdownGrace),
        feed(engine, options.snapshots),
        status(makeStatusService(feed)),
        health(makeHealthService(feed, options.watchInterval)) {}

  void take(shm::Fd fd) {
    ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd.release();  // gRPC closes it, also when it is shut down.
    connections->HandleNewConnection(&connection);
  }

  const std::chrono::milliseconds shutdownGrace;
  SnapshotFeed feed;
  std::unique_ptr<grpc::Service> status;
  std::unique_ptr<grpc::Service> health;
  std::unique_ptr<ExternalConnectionAcceptor> connections;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<AcceptLoop> acceptLoop;
  int tcpPort = 0;
};

GrpcServer::GrpcServer(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

GrpcServer::~GrpcServer() { stop(); }

shm::Result<std::unique_ptr<GrpcServer>> GrpcServer::start(flow::EnginePort& engine,
                                                           const GrpcServerOptions& options,
                                                           bool* tcpFailed) {
  int tcpPort = 0;
  RUEDA_ASSIGN_OR_RETURN(std::vector<ListenSocket> sockets,
                         listenAll(options, &tcpPort, tcpFailed));

  // Keeps gRPC's library alive until the process ends: its last shutdown joins a poller that sleeps
  // for up to 10 s after a large answer, and the daemon's stop would take that long.
  grpc_init();
  auto parts = std::make_unique<Parts>(engine, options);
  parts->tcpPort = tcpPort;
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  setLimits(&builder);
  builder.RegisterService(parts->status.get());
  builder.RegisterService(parts->health.get());
  parts->connections = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  parts->server = builder.BuildAndStart();
  if (parts->server == nullptr) {
    return shm::Status(shm::Code::kInternal, "gRPC refuses to build the status server");
  }
  parts->acceptLoop = std::make_unique<AcceptLoop>(
      std::move(sockets), [parts = parts.get()](shm::Fd fd) { parts->take(std::move(fd)); });
  std::unique_ptr<GrpcServer> started(new GrpcServer(std::move(parts)));
  RUEDA_RETURN_IF_ERROR(started->parts_->acceptLoop->start());
  return started;
}

void GrpcServer::stop() {
  if (parts_->acceptLoop == nullptr) return;
  parts_->acceptLoop->stop();
  parts_->feed.stop();
  parts_->server->Shutdown(std::chrono::system_clock::now() + parts_->shutdownGrace);
  parts_->acceptLoop.reset();
}

int GrpcServer::tcpPort() const { return parts_->tcpPort; }

}  // namespace rueda::serve
