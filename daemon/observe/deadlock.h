// SPDX-License-Identifier: Apache-2.0
#pragma once

// Finds blocking deadlocks at once, without a timer: every rank sleeps, and no operation has all of
// them. Pure.

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace rueda::observe {

// `waiting[r]` is what rank r sleeps in ("allreduce 'x'"), one entry for each sleeping thread;
// empty when no thread of the rank is known to sleep. Returns nullopt unless every rank sleeps and
// no operation is slept in by all; else "ranks [0, 2] wait for allreduce 'a'; rank 1 waits for …".
std::optional<std::string> findDeadlock(const std::vector<std::set<std::string>>& waiting);

// "[0, 1, 5]", at most 16 ranks and then "and K more".
std::string rankList(const std::vector<int>& ranks);

}  // namespace rueda::observe
