// SPDX-License-Identifier: Apache-2.0
#include "shm/doorbell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

namespace rueda::shm {
namespace {

// Shared futexes (not FUTEX_PRIVATE): the waiters are in other processes.
long futex(std::atomic<uint32_t>* word, int op, uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), op, value, timeout, nullptr, 0);
}

}  // namespace

void ringAlways(Bell& bell) {
  bell.value.fetch_add(1, std::memory_order_seq_cst);
  futex(&bell.value, FUTEX_WAKE, INT_MAX, nullptr);
}

BellSleep::BellSleep(Bell& bell) : bell_(bell) {
  bell_.sleepers.fetch_add(1, std::memory_order_seq_cst);
  seen_ = bell_.value.load(std::memory_order_seq_cst);
}

BellSleep::~BellSleep() { bell_.sleepers.fetch_sub(1, std::memory_order_seq_cst); }

WaitResult BellSleep::wait(std::chrono::microseconds timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{static_cast<time_t>(seconds.count()),
                       static_cast<long>((timeout - seconds).count() * 1000)};
  WaitResult result = WaitResult::kWoken;
  if (futex(&bell_.value, FUTEX_WAIT, seen_, &limit) != 0) {
    if (errno == ETIMEDOUT) result = WaitResult::kTimedOut;
    if (errno == EINTR) result = WaitResult::kInterrupted;
  }
  seen_ = bell_.value.load(std::memory_order_seq_cst);
  return result;
}

}  // namespace rueda::shm
