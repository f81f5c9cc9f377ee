// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one user holds of the daemon, against its limits. Pure; engine thread.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

#include "shm/status.h"

namespace rueda::submit {

struct QuotaLimits {
  uint32_t sessions = 256;  // Of all users.
  uint32_t sessionsPerUid = 128;
  uint32_t jobsPerUid = 64;
  uint64_t bytesPerUid = 0;  // Segments, and the boards of jobs.
};

class Quota {
 public:
  explicit Quota(const QuotaLimits& limits) : limits_(limits) {}

  // kResourceExhausted names the limit, what is held and what was asked.
  shm::Status takeSession(uid_t uid);
  // With the bytes of its boards; given back as it was taken.
  shm::Status takeJob(uid_t uid, uint64_t boardsBytes);
  shm::Status takeBytes(uid_t uid, uint64_t bytes);  // Of one segment; given back as it was taken.
  void giveSession(uid_t uid);
  void giveJob(uid_t uid, uint64_t boardsBytes);
  void giveBytes(uid_t uid, uint64_t bytes);

  // Of all segments. Not of boards, most pages of which are never written.
  uint64_t totalBytes() const { return totalBytes_; }

 private:
  struct Held {
    uint32_t sessions = 0;
    uint32_t jobs = 0;
    uint64_t bytes = 0;  // Of segments.
    uint64_t boardsBytes = 0;
    uint64_t segments = 0;
  };
  shm::Status checkBytes(uid_t uid, const Held& held, uint64_t bytes) const;
  void dropIfEmpty(uid_t uid);

  const QuotaLimits limits_;
  std::map<uid_t, Held> held_;
  uint32_t totalSessions_ = 0;
  uint64_t totalBytes_ = 0;
};

// Bytes of memory that the machine can still give, from /proc/meminfo's text (MemAvailable), or 0.
uint64_t parseAvailableBytes(const std::string& meminfo);
// The same of this machine now, and its total.
uint64_t availableBytes();
uint64_t totalMemoryBytes();

}  // namespace rueda::submit
