// SPDX-License-Identifier: Apache-2.0
#include "shm/process_barrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace rueda::shm {

bool registerForProcessBarrier() {
  return ::syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0) == 0;
}

void processBarrier() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  // Where the call does not exist nobody has registered, and the peers fence by themselves.
  ::syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0);
}

}  // namespace rueda::shm
