// SPDX-License-Identifier: Apache-2.0
#include "client/cli/commands.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <future>
#include <list>
#include <memory>
#include <ostream>
#include <utility>
#include <vector>

#include "client/cli/find_daemon.h"
#include "client/cli/format.h"
#include "client/cli/render.h"
#include "client/cli/types.h"
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

// A daemon at an address, or why there is none. For Unix sockets we connect ourselves: the reason
// is then the system's own, not gRPC's.
shm::Result<Daemon> reach(const StatusAddress& address) {
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

template <typename Request, typename Response>
using Method = grpc::Status (v1::Status::Stub::*)(grpc::ClientContext*, const Request&, Response*);

template <typename Request, typename Response>
grpc::Status ask(const Daemon& daemon, const CommandOptions& options,
                 Method<Request, Response> method, Response* response) {
  const std::unique_ptr<v1::Status::Stub> stub = v1::Status::NewStub(daemon.channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options.timeout);
  Request request;
  request.set_job_id(options.job);
  return ((*stub).*method)(&context, request, response);
}

// Asks each of several private daemons, all at once: one that is stopped costs one timeout. Prints
// those that answer (with --job: that have it), each under its socket unless it is the only one.
// Those that ended meanwhile are left out.
template <typename Request, typename Response, typename Print>
int callEach(const std::vector<StatusAddress>& addresses, const CommandOptions& options,
             Streams streams, Method<Request, Response> method, int silentCode, Print print) {
  struct Asked {
    Daemon daemon;
    Response response;
    std::future<grpc::Status> status;
  };
  std::list<Asked> asked;
  for (const StatusAddress& address : addresses) {
    shm::Result<Daemon> daemon = reach(address);
    if (!daemon.isOk()) continue;
    Asked& one = asked.emplace_back(Asked{std::move(daemon).value(), {}, {}});
    one.status = std::async(std::launch::async, [&one, &options, method] {
      return ask(one.daemon, options, method, &one.response);
    });
  }
  std::vector<std::pair<StatusAddress, Response>> answers;
  int code = kExitOk;
  for (Asked& one : asked) {
    const grpc::Status status = one.status.get();
    const grpc::StatusCode error = status.error_code();
    if (status.ok())
      answers.emplace_back(one.daemon.address, std::move(one.response));
    else if (error != grpc::StatusCode::NOT_FOUND && error != grpc::StatusCode::UNAVAILABLE)
      code = std::max(code, reportCall(one.daemon, options, status, silentCode, streams));
  }
  if (options.json && answers.size() > 1) return report(severalRun(addresses), streams);
  if (answers.empty() && code == kExitOk && options.job.empty()) {
    return report({shm::Code::kUnavailable, "all private daemons have ended meanwhile"}, streams);
  }
  if (answers.empty() && code == kExitOk) {
    streams.error << "ruedactl: none of " << addresses.size() << " private daemons has job \""
                  << printable(options.job) << "\"\n";
    return kExitUnhealthy;
  }
  for (size_t i = 0; i < answers.size(); ++i) {
    const auto& [address, response] = answers[i];
    if (answers.size() > 1 && options.job.empty())
      streams.out << (i == 0 ? "" : "\n") << "ruedad at " << printable(address.daemonSocket())
                  << "\n";
    code = std::max<int>(code, print(response));
  }
  return code;
}

// Calls one method of the service. `print` turns the response into the output and the exit code.
template <typename Request, typename Response, typename Print>
int call(const CommandOptions& options, Streams streams, Method<Request, Response> method,
         int silentCode, Print print) {
  const auto found = findDaemons(systemFindOptions(options.socket));
  if (!found.isOk()) {
    const shm::Status status = found.status();
    if (status.code() != shm::Code::kUnavailable) return report(status, streams);
    return report({status.code(), status.message() + kHint}, streams);
  }
  if (found.value().size() > 1)
    return callEach(found.value(), options, streams, method, silentCode, print);
  const shm::Result<Daemon> daemon = reach(found.value().front());
  if (!daemon.isOk()) return report(daemon.status(), streams);
  Response response;
  const grpc::Status status = ask(daemon.value(), options, method, &response);
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

int runTypes(const CommandOptions& options, Streams streams) {
  streams.out << (options.json ? jsonTypes() : renderTypes());
  return kExitOk;
}

}  // namespace rueda::cli
