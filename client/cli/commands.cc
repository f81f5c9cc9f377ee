// SPDX-License-Identifier: Apache-2.0
#include "client/cli/commands.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <ostream>

#include "client/cli/find_daemon.h"
#include "client/cli/format.h"
#include "client/cli/render.h"
#include "proto/status.grpc.pb.h"
#include "shm/status.h"

namespace rueda::cli {
namespace {

constexpr char kHint[] = "; is the rueda service running? (systemctl status ruedad)";

struct Daemon {
  StatusAddress address;
  std::shared_ptr<grpc::Channel> channel;

  // Whether somebody has taken the connection. A channel over our own socket has no state to ask.
  bool isConnected() const {
    return address.kind != StatusAddress::Kind::kTcp ||
           channel->GetState(false) == GRPC_CHANNEL_READY;
  }
};

shm::Status unreachable(const StatusAddress& address, const std::string& reason) {
  return {shm::Code::kUnavailable,
          "cannot reach ruedad at " + printable(address.toString()) + ": " + reason + kHint};
}

// A reachable daemon, or why there is none. For Unix sockets we connect ourselves: the reason is
// then the system's own, not gRPC's.
shm::Result<Daemon> reach(const CommandOptions& options) {
  shm::Result<StatusAddress> found = findDaemon(systemFindOptions(options.socket));
  if (!found.isOk()) {
    const shm::Status status = found.status();
    if (status.code() != shm::Code::kUnavailable) return status;
    return shm::Status(status.code(), status.message() + kHint);
  }
  const StatusAddress& address = found.value();
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // A daemon of this host is never behind one.
  if (address.kind == StatusAddress::Kind::kTcp) {
    return Daemon{address, grpc::CreateCustomChannel(
                               address.name, grpc::InsecureChannelCredentials(), arguments)};
  }
  shm::Result<shm::Fd> fd = connectStatus(address);
  if (!fd.isOk()) return unreachable(address, fd.status().message());
  return Daemon{address, grpc::CreateCustomInsecureChannelFromFd("localhost", fd.value().release(),
                                                                 arguments)};
}

int report(const shm::Status& status, Streams streams) {
  streams.error << "ruedactl: " << status.message() << "\n";
  return status.code() == shm::Code::kInvalidArgument ? kExitUsage : kExitUnreachable;
}

// One failed call as one line and an exit code. `silentCode`: for a daemon that is connected but
// does not answer.
int reportCall(const Daemon& daemon, const CommandOptions& options, const grpc::Status& status,
               int silentCode, Streams streams) {
  const std::string where = "ruedad at " + printable(daemon.address.toString());
  const std::string text = printable(status.error_message());
  switch (status.error_code()) {
    case grpc::StatusCode::NOT_FOUND:
      streams.error << "ruedactl: " << text << "\n";
      return kExitUnhealthy;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      if (!daemon.isConnected()) break;
      streams.error << "ruedactl: " << where << " does not answer within "
                    << options.timeout.count() << " ms: " << text << "\n";
      return silentCode;
    case grpc::StatusCode::UNAVAILABLE:
      break;
    default:
      streams.error << "ruedactl: " << where << " refuses: " << text << "\n";
      return kExitUnreachable;
  }
  streams.error << "ruedactl: " << unreachable(daemon.address, text).message() << "\n";
  return kExitUnreachable;
}

// Calls one method of the service. `print` turns the response into the output and the exit code.
template <typename Request, typename Response, typename Print>
int call(const CommandOptions& options, Streams streams,
         grpc::Status (v1::Status::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
         int silentCode, Print print) {
  shm::Result<Daemon> daemon = reach(options);
  if (!daemon.isOk()) return report(daemon.status(), streams);
  const std::unique_ptr<v1::Status::Stub> stub = v1::Status::NewStub(daemon.value().channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options.timeout);
  Request request;
  request.set_job_id(options.job);
  Response response;
  const grpc::Status status = ((*stub).*method)(&context, request, &response);
  if (!status.ok()) return reportCall(daemon.value(), options, status, silentCode, streams);
  return print(response);
}

}  // namespace

int runStatus(const CommandOptions& options, Streams streams) {
  return call(options, streams, &v1::Status::Stub::GetStatus, kExitUnreachable,
              [&](const v1::GetStatusResponse& response) {
                streams.out << (options.json ? jsonStatus(response) : renderStatus(response));
                return kExitOk;
              });
}

int runJobs(const CommandOptions& options, Streams streams) {
  return call(options, streams, &v1::Status::Stub::ListJobs, kExitUnreachable,
              [&](const v1::ListJobsResponse& response) {
                streams.out << (options.json ? jsonJobs(response) : renderJobs(response));
                return kExitOk;
              });
}

int runPending(const CommandOptions& options, Streams streams) {
  return call(options, streams, &v1::Status::Stub::ListPending, kExitUnreachable,
              [&](const v1::ListPendingResponse& response) {
                streams.out << (options.json ? jsonPending(response) : renderPending(response));
                return kExitOk;
              });
}

int runHealth(const CommandOptions& options, Streams streams) {
  return call(options, streams, &v1::Status::Stub::GetStatus, kExitUnhealthy,
              [&](const v1::GetStatusResponse& response) {
                streams.out << (options.json ? jsonHealth(response) : renderHealth(response));
                return isHealthy(response) ? kExitOk : kExitUnhealthy;
              });
}

}  // namespace rueda::cli
