// SPDX-License-Identifier: Apache-2.0
#pragma once

// A consistent copy of the engine's state at one moment, for status and tests. Plain values; made
// on the engine thread, read by anybody.

#include <cstdint>
#include <string>
#include <vector>

namespace rueda::flow {

struct RankView {
  int rank = 0;
  int pid = 0;
  std::string host;
  uint64_t arenaBytes = 0;  // Tensor segments made for this rank.
  uint64_t submitted = 0;   // Requests accepted since the session began.
  uint64_t direct = 0;      // Operations that it began on boards, as it says; modulo 2^32.
  uint64_t completed = 0;   // Completions delivered.
  std::string state;        // "running", "left", "lost"
};

struct PendingView {
  std::string name;
  std::string kind;  // "allreduce", …
  std::string dtype;
  std::string shape;         // "[3, 4]"
  std::vector<int> present;  // Ranks that submitted or wait in this operation.
  std::vector<int> missing;  // Ranks that are waited for: those that have not come or, where all
                             // have, those that were stopped at work.
  std::vector<int> stopped;  // Ranks of the job whose process is stopped (SIGSTOP).
  uint64_t ageMs = 0;        // Since the first rank arrived.
  uint32_t set = 0;          // Process set.
  bool mayWait = false;      // A join: that it waits is no fault.
};

struct JobView {
  std::string id;
  uint32_t uid = 0;
  int size = 0;
  uint64_t generation = 0;
  std::string state;        // "forming", "running", "failed", "ended"
  std::string failure;      // Why, when failed.
  bool deadlocked = false;  // Every rank blocks on an operation that some other rank lacks: it is
                            // so for certain, or may be (watch.h).
  std::vector<RankView> ranks;
  std::vector<PendingView> pending;
  uint64_t opsCompleted = 0;  // Operations decided and executed by the daemon.
  uint64_t opsDirect = 0;     // Of those on boards (RankView::direct): begun by all ranks of a set.
  uint64_t opsFailed = 0;
  uint64_t bytesReduced = 0;
};

struct HealthPart {
  std::string name;  // "ipc", "engine", "workers", "memory"
  bool serving = true;
  std::string reason;
};

struct StateView {
  std::string version;
  std::string socket;
  int pid = 0;
  uint64_t uptimeMs = 0;
  bool draining = false;
  uint64_t residentBytes = 0;
  uint64_t sharedBytes = 0;  // All segments alive.
  uint64_t openFds = 0;
  uint64_t threads = 0;
  uint64_t sessionsAccepted = 0;
  uint64_t sessionsRejected = 0;  // Closed for breaking the contract or a quota.
  uint64_t ranksLost = 0;
  std::vector<JobView> jobs;
  std::vector<HealthPart> health;
};

}  // namespace rueda::flow
