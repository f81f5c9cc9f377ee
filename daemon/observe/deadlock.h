// SPDX-License-Identifier: Apache-2.0
#pragma once

// Finds blocking deadlocks at once, without a timer: a thread of every rank sleeps, and no
// operation has all of them. It knows nothing of threads that do not sleep. Pure.

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace rueda::observe {

struct WaitedFor {
  std::string operation;  // "allreduce 'x'"
  size_t ranks = 0;       // How many it takes.
  bool operator<(const WaitedFor& other) const { return operation < other.operation; }
};

// `waiting[r]` is what rank r sleeps in, one entry for each sleeping thread; empty when no thread
// of the rank is known to sleep. Returns nullopt unless every rank sleeps and no operation is slept
// in by all that it takes; else "ranks [0, 2] wait for allreduce 'a'; rank 1 waits for …".
std::optional<std::string> findDeadlock(const std::vector<std::set<WaitedFor>>& waiting);

// "[0, 1, 5]", at most 16 ranks and then "and K more".
std::string rankList(const std::vector<int>& ranks);

}  // namespace rueda::observe
