// SPDX-License-Identifier: Apache-2.0
#include "daemon/app.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "shm/unix_socket.h"

namespace rueda::daemon {

using shm::Code;
using shm::Status;

namespace {

constexpr size_t kMaxDefaultWorkers = 4;    // Measured: more do not help one operation in memory.
constexpr mode_t kSystemSocketMode = 0666;  // Everybody may connect; the kernel says who it is.
constexpr uint64_t kDefaultMemoryPercent = 80;

size_t usableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<size_t>(std::max(1, CPU_COUNT(&set)));
}

void raiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// Device and inode of a socket file; none for an abstract name.
std::optional<std::pair<dev_t, ino_t>> fileIdOf(const std::string& socket) {
  struct stat info {};
  if (socket[0] == '@' || ::lstat(socket.c_str(), &info) != 0) return std::nullopt;
  return std::make_pair(info.st_dev, info.st_ino);
}

engine::EngineOptions engineOptions(const Config& config) {
  engine::EngineOptions options;
  options.lobby.handshakeTimeoutMs = config.handshakeTimeoutMs;
  options.lobby.isolated = config.isolated;
  options.lobby.onlyOwnUid = config.isPrivate;
  options.lobby.cores = static_cast<int>(usableCores());
  options.quota.sessions = config.maxSessions;
  options.quota.sessionsPerUid = config.maxSessionsPerUid;
  options.quota.jobsPerUid = config.maxJobsPerUid;
  options.quota.bytesPerUid = config.maxBytesPerUid != 0
                                  ? config.maxBytesPerUid
                                  : submit::totalMemoryBytes() / 100 * kDefaultMemoryPercent;
  options.job.fusion.fusionBytes = config.fusionBytes;
  options.job.stallWarn = std::chrono::milliseconds(config.stallWarnMs);
  options.job.stallShutdown = std::chrono::seconds(config.stallShutdownSeconds);
  options.endWithLastClient = config.isPrivate;
  options.lifelineFd = config.lifelineFd;
  options.socket = config.socket;
  return options;
}

}  // namespace

std::string App::statusAddress(const std::string& socket) {
  if (socket[0] == '@') return "unix-abstract:" + socket.substr(1) + ".status";
  const size_t slash = socket.rfind('/');
  return "unix:" + (slash == std::string::npos ? "" : socket.substr(0, slash + 1)) + "status.sock";
}

shm::Result<std::unique_ptr<App>> App::start(const Config& config, int* exitCode) {
  raiseFileLimit();
  auto app = std::unique_ptr<App>(new App(config));
  app->ended_ = shm::Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  auto listener = shm::listenUnix(config.socket, config.isPrivate ? 0600 : kSystemSocketMode);
  if (!listener.isOk()) {
    *exitCode = listener.status().code() == Code::kAlreadyExists ? kExitAlreadyRunning
                                                                 : kExitSocketUnusable;
    return listener.status();
  }
  app->socketFile_ = fileIdOf(config.socket);
  const size_t workers =
      config.workers != 0 ? config.workers : std::min(usableCores(), kMaxDefaultWorkers);
  app->workers_ = std::make_unique<execute::WorkerPool>(workers);
  app->engine_ = std::make_unique<engine::Engine>(engineOptions(config),
                                                  std::move(listener).value(), *app->workers_);
  app->engineThread_ = std::thread([raw = app.get()] {
    pthread_setname_np(pthread_self(), "engine");
    raw->engine_->run();
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(raw->ended_.get(), &one, sizeof one);
  });
  serve::GrpcServerOptions options;
  options.unixAddress = statusAddress(config.socket);
  options.tcpAddress = config.statusTcp;
  bool tcpFailed = false;
  auto server = serve::GrpcServer::start(*app->engine_, options, &tcpFailed);
  if (!server.isOk()) {
    const Code code = server.status().code();
    const bool isBadSetting = code == Code::kInvalidArgument || code == Code::kPermissionDenied;
    *exitCode = !tcpFailed ? kExitSocketUnusable : isBadSetting ? kExitBadConfig : kExitPortInUse;
    app->stop();
    return server.status();
  }
  app->server_ = std::move(server).value();
  return app;
}

App::~App() { stop(); }

void App::requestStop() { engine_->requestStop(std::chrono::seconds(config_.drainSeconds)); }

void App::stop() {
  if (server_) server_->stop();
  if (engineThread_.joinable()) {
    engine_->requestStop(std::chrono::seconds(0));
    engineThread_.join();
  }
  // Workers may still call back into the engine, so they end before it does.
  if (workers_) workers_->stop();
  server_.reset();
  engine_.reset();
  // Not what another daemon has put there since.
  if (socketFile_ && socketFile_ == fileIdOf(config_.socket)) ::unlink(config_.socket.c_str());
  socketFile_.reset();
}

}  // namespace rueda::daemon
