// SPDX-License-Identifier: Apache-2.0
#pragma once

// When an operation did what: in the completion of a request with kFlagTimed (README.md has the
// tables). Written by the daemon. Nanoseconds of CLOCK_MONOTONIC, which all processes of a host
// share, and std::chrono::steady_clock reads.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace rueda::shm {

struct OpTimes {
  int64_t complete;  //  0  every rank that it needs had submitted it
  int64_t decided;   //  8  it might run, or was found to be at fault; later only for one of a group
  int64_t cycle;     // 16  the cycle that let it run began
  int64_t started;   // 24  on the data plane; 0: it never ran
  int64_t ended;     // 32  there; 0 likewise
};
static_assert(sizeof(OpTimes) == 40 && offsetof(OpTimes, ended) == 32);
static_assert(std::is_trivially_copyable_v<OpTimes>);

// One rank's part.
struct RankTime {
  int32_t rank;       // 0  in the job
  uint32_t reserved;  // 4
  int64_t submitted;  // 8
};
static_assert(sizeof(RankTime) == 16 && offsetof(RankTime, submitted) == 8);
static_assert(std::is_trivially_copyable_v<RankTime>);

inline int64_t nanosOf(std::chrono::steady_clock::time_point at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

}  // namespace rueda::shm
