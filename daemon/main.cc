// SPDX-License-Identifier: Apache-2.0
// ruedad: reads its settings, runs the App, and ends it on a signal or when it ends by itself.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>

#include "daemon/app.h"
#include "daemon/base/log.h"

namespace {

using rueda::daemon::App;

// Signals come through a descriptor: nothing runs in a handler.
int makeSignalFd() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
}

void waitForEnd(App* app, int signals) {
  for (;;) {
    pollfd waiting[] = {{app->endedFd(), POLLIN, 0}, {signals, POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0) continue;
    if (waiting[0].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signals, &info, sizeof info) != sizeof info) continue;
    if (info.ssi_signo == SIGHUP) {
      rueda::base::logInfo("SIGHUP: settings are read at start only; nothing changes");
      continue;
    }
    rueda::base::logInfo("signal " + std::to_string(info.ssi_signo) + ": draining");
    app->requestStop();
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::string help;
  const auto config = rueda::daemon::parseConfig({argv + 1, argv + argc}, &help);
  if (!config.isOk()) {
    std::fprintf(stderr, "ruedad: %s\n", config.status().message().c_str());
    return rueda::daemon::kExitBadConfig;
  }
  if (!help.empty() || config.value().checkOnly) {
    std::fputs(help.empty() ? config.value().describe().c_str() : help.c_str(), stdout);
    return rueda::daemon::kExitOk;
  }
  rueda::base::initLog(config.value().logLevel, config.value().logJournal);
  const int signals = makeSignalFd();
  int exitCode = rueda::daemon::kExitOk;
  auto app = App::start(config.value(), &exitCode);
  if (!app.isOk()) {
    std::fprintf(stderr, "ruedad: %s\n", app.status().message().c_str());
    return exitCode;
  }
  if (!config.value().isPrivate) rueda::base::logInfo("ruedad serves " + config.value().socket);
  waitForEnd(app.value().get(), signals);
  app.value()->stop();
  return rueda::daemon::kExitOk;
}
