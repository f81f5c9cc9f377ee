// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a process joins a job. Values; any thread.

#include <cstdint>
#include <functional>
#include <string>

#include "shm/handshake.h"
#include "shm/status.h"

namespace rueda::client {

struct Options {
  int rank = 0;
  int size = 1;
  int localRank = 0;
  int localSize = 1;
  int crossRank = 0;
  int crossSize = 1;
  std::string socket = "/run/rueda/rueda.sock";
  std::string job = "default";
  std::string hostname = "localhost";
  uint32_t startTimeoutMs = 30000;
  bool isolated = false;
  shm::Knobs knobs{};
  // Where rank 0 writes a timeline from the start, or "DYNAMIC": where startTimeline() says. "":
  // there is none.
  std::string timeline;
  bool marksCycles = false;           // In that one.
  std::function<bool()> interrupted;  // True: stop waiting. May be empty.
};

// Options from the environment (see rueda_options_init in client/c/rueda.h). kInvalidArgument names
// a variable that is malformed, or missing while others of its group are set.
shm::Result<Options> optionsFromEnvironment();

}  // namespace rueda::client
