// SPDX-License-Identifier: Apache-2.0
#include "daemon/submit/quota.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace rueda::submit {

using shm::Code;
using shm::Status;

namespace {

// The kernel lets a process map 65 530 segments (vm.max_map_count); users share them.
constexpr uint64_t kSegmentsPerUid = 8192;

Status exhausted(const std::string& what, uid_t uid, uint64_t held, uint64_t asked,
                 uint64_t limit) {
  return {Code::kResourceExhausted, what + " of uid " + std::to_string(uid) + ": holds " +
                                        std::to_string(held) + ", asks for " +
                                        std::to_string(asked) + ", limit " + std::to_string(limit)};
}

}  // namespace

Status Quota::takeSession(uid_t uid) {
  if (totalSessions_ >= limits_.sessions)
    return {Code::kResourceExhausted,
            "the daemon serves its limit of " + std::to_string(limits_.sessions) + " clients"};
  Held& held = held_[uid];
  if (held.sessions >= limits_.sessionsPerUid)
    return exhausted("clients", uid, held.sessions, 1, limits_.sessionsPerUid);
  ++held.sessions;
  ++totalSessions_;
  return Status::ok();
}

Status Quota::checkBytes(uid_t uid, const Held& held, uint64_t bytes) const {
  const uint64_t limit = limits_.bytesPerUid - held.boardsBytes;
  if (bytes <= limit && held.bytes <= limit - bytes) return Status::ok();
  const Status status = exhausted("bytes of shared memory", uid, held.bytes, bytes, limit);
  if (held.boardsBytes == 0) return status;
  return {status.code(), status.message() + " beside " + std::to_string(held.boardsBytes) +
                             " for the boards of its jobs"};
}

Status Quota::takeJob(uid_t uid, uint64_t boardsBytes) {
  Held& held = held_[uid];
  if (held.jobs >= limits_.jobsPerUid)
    return exhausted("jobs", uid, held.jobs, 1, limits_.jobsPerUid);
  RUEDA_RETURN_IF_ERROR(checkBytes(uid, held, boardsBytes));
  ++held.jobs;
  held.boardsBytes += boardsBytes;
  return Status::ok();
}

Status Quota::takeBytes(uid_t uid, uint64_t bytes) {
  Held& held = held_[uid];
  RUEDA_RETURN_IF_ERROR(checkBytes(uid, held, bytes));
  if (held.segments >= kSegmentsPerUid)
    return exhausted("segments", uid, held.segments, 1, kSegmentsPerUid);
  ++held.segments;
  held.bytes += bytes;
  totalBytes_ += bytes;
  return Status::ok();
}

void Quota::giveSession(uid_t uid) {
  --held_[uid].sessions;
  --totalSessions_;
  dropIfEmpty(uid);
}

void Quota::giveJob(uid_t uid, uint64_t boardsBytes) {
  Held& held = held_[uid];
  --held.jobs;
  held.boardsBytes -= boardsBytes;
  dropIfEmpty(uid);
}

void Quota::giveBytes(uid_t uid, uint64_t bytes) {
  held_[uid].bytes -= bytes;
  --held_[uid].segments;
  totalBytes_ -= bytes;
  dropIfEmpty(uid);
}

void Quota::dropIfEmpty(uid_t uid) {
  const auto it = held_.find(uid);
  if (it->second.sessions == 0 && it->second.jobs == 0 && it->second.bytes == 0) held_.erase(it);
}

uint64_t parseAvailableBytes(const std::string& meminfo) {
  const std::string key = "MemAvailable:";
  const size_t at = meminfo.find(key);
  if (at == std::string::npos) return 0;
  return std::strtoull(meminfo.c_str() + at + key.size(), nullptr, 10) * 1024;
}

uint64_t availableBytes() {
  std::ifstream file("/proc/meminfo");
  std::stringstream text;
  text << file.rdbuf();
  return parseAvailableBytes(text.str());
}

uint64_t totalMemoryBytes() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace rueda::submit
