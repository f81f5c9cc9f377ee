// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every setting of the daemon in one validated struct, read once at start: flag over environment
// over file over default. config.cc is the only file of the daemon that reads the environment.

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/base/log.h"
#include "shm/status.h"

namespace rueda::daemon {

struct Config {
  std::string file;                              // --config RUEDA_CONFIG; YAML; may be empty
  std::string socket = "/run/rueda/rueda.sock";  // path or @abstract name
  std::string statusTcp;               // host:port for the status service; empty: Unix socket only
  bool isPrivate = false;              // serve the own uid alone, end with the last client
  int lifelineFd = -1;                 // private: end when this pipe closes and no client is left
  uint32_t workers = 0;                // reduction threads, 1..64; 0: cores, at most 4
  uint32_t maxSessions = 256;          // clients at once, 1..4096
  uint32_t maxSessionsPerUid = 128;    // 1..4096
  uint32_t maxJobsPerUid = 64;         // 1..1024
  uint64_t maxBytesPerUid = 0;         // bytes of segments; 0: 80 % of the machine's memory
  uint32_t handshakeTimeoutMs = 2000;  // from connect to hello, 50..60000
  uint32_t drainSeconds = 30;          // SIGTERM: wait this long for running jobs, 0..3600
  uint32_t stallWarnMs = 1000;         // log a pending operation after this, 100..3600000
  uint32_t stallShutdownSeconds = 0;   // fail it after this; 0: never
  uint64_t fusionBytes = 128u << 20;   // largest fused operation of one rank; 0: no fusion
  bool isolated = false;               // ranks never map each other's memory; the daemon sums
  base::LogLevel logLevel = base::LogLevel::kInfo;
  bool logJournal = false;  // no time stamps in log lines
  bool checkOnly = false;   // --check-config: validate, print, exit

  // "name = value   (from)" lines, for --check-config.
  std::string describe() const;
};

// Exit codes of the daemon, as documented in --help.
enum ExitCode : int {
  kExitOk = 0,
  kExitBadConfig = 2,
  kExitAlreadyRunning = 3,
  kExitPortInUse = 4,
  kExitSocketUnusable = 5,
};

// kInvalidArgument names setting, value and source. `*help` is set instead when --help was asked.
shm::Result<Config> parseConfig(const std::vector<std::string>& arguments, std::string* help);

}  // namespace rueda::daemon
