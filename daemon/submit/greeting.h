// SPDX-License-Identifier: Apache-2.0
#pragma once

// Border function of the socket: the first packet of a client becomes a Greeting, or a reason to
// close. Pure; fuzzed.

#include <string>

#include "shm/handshake.h"
#include "shm/status.h"
#include "shm/unix_socket.h"

namespace rueda::submit {

struct Greeting {
  uint16_t protocol = 0;
  std::string job;
  std::string hostname;
  int rank = 0;
  int size = 1;
  int localRank = 0;
  int localSize = 1;
  uint32_t startTimeoutMs = 30000;
  bool isolated = false;
  shm::Knobs knobs{};
};

// kProtocolError: not a hello, or no common version (names both ranges). kInvalidArgument: numbers
// that make no sense, named.
shm::Result<Greeting> parseGreeting(const shm::Packet& packet);

}  // namespace rueda::submit
