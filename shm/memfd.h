// SPDX-License-Identifier: Apache-2.0
#pragma once

// Anonymous shared memory: memfds that are sealed against shrinking and growing before anybody else
// sees them. Without the seals a peer could truncate the file and kill this process with SIGBUS.
// Nothing here has a name in a file system, so nothing is left after SIGKILL. Any thread.

#include <cstdint>

#include "shm/fd.h"
#include "shm/status.h"

namespace rueda::shm {

// A new zero-filled memfd of exactly `bytes`, sealed with F_SEAL_SHRINK|GROW|SEAL. `label` shows in
// /proc/PID/maps only. kResourceExhausted if the kernel refuses.
Result<Fd> createSealedMemfd(const char* label, uint64_t bytes);

// Checks that a descriptor from a peer is a memfd of `bytes` with those seals; else
// kProtocolError naming what is wrong.
Status verifySealedMemfd(int fd, uint64_t bytes);

}  // namespace rueda::shm
