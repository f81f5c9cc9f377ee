// SPDX-License-Identifier: Apache-2.0
#pragma once

// One function per command of ruedactl: find the daemon, ask, print. Each returns the exit code.
// One thread; blocks at most the timeout. No other output than to the streams given.

#include <chrono>
#include <iosfwd>
#include <string>

namespace rueda::cli {

// Exit codes, documented in --help; never renumber.
enum ExitCode : int {
  kExitOk = 0,
  kExitUnhealthy = 1,    // health: a part does not serve, a job failed or is, or may be,
                         // deadlocked, or the daemon is there but does not answer. Others: --job
                         // names no job.
  kExitUsage = 2,        // Wrong arguments, or --json and several daemons to choose from.
  kExitUnreachable = 3,  // No daemon, or no answer.
};

struct CommandOptions {
  std::string socket;  // Empty: look for the daemon.
  std::string job;     // Empty: all jobs.
  bool json = false;
  std::chrono::milliseconds timeout{2000};
};

struct Streams {
  std::ostream& out;
  std::ostream& error;  // One line per failure.
};

int runStatus(const CommandOptions& options, Streams streams);
int runJobs(const CommandOptions& options, Streams streams);
int runPending(const CommandOptions& options, Streams streams);
int runHealth(const CommandOptions& options, Streams streams);
// Looks for no daemon.
int runTypes(const CommandOptions& options, Streams streams);

}  // namespace rueda::cli
