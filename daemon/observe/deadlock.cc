// SPDX-License-Identifier: Apache-2.0
#include "daemon/observe/deadlock.h"

#include <algorithm>
#include <map>

namespace rueda::observe {
namespace {

constexpr size_t kMaxRanksListed = 16;
constexpr size_t kMaxOpsListed = 10;

}  // namespace

std::string rankList(const std::vector<int>& ranks) {
  std::string text = "[";
  for (size_t i = 0; i < std::min(ranks.size(), kMaxRanksListed); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  text += "]";
  if (ranks.size() > kMaxRanksListed)
    text += " and " + std::to_string(ranks.size() - kMaxRanksListed) + " more";
  return text;
}

std::optional<std::string> findDeadlock(const std::vector<std::set<WaitedFor>>& waiting) {
  std::map<WaitedFor, std::vector<int>> byOperation;
  for (size_t rank = 0; rank < waiting.size(); ++rank) {
    if (waiting[rank].empty()) return std::nullopt;
    for (const WaitedFor& operation : waiting[rank])
      byOperation[operation].push_back(static_cast<int>(rank));
  }
  if (waiting.size() < 2) return std::nullopt;
  for (const auto& [operation, ranks] : byOperation)
    if (ranks.size() == operation.ranks) return std::nullopt;
  std::string text;
  size_t listed = 0;
  for (const auto& [operation, ranks] : byOperation) {
    if (listed++ == kMaxOpsListed)
      return text + "; and " + std::to_string(byOperation.size() - kMaxOpsListed) + " more";
    text += (text.empty() ? "" : "; ") +
            (ranks.size() == 1 ? "rank " + std::to_string(ranks.front()) + " waits"
                               : "ranks " + rankList(ranks) + " wait") +
            " for " + operation.operation;
  }
  return text;
}

}  // namespace rueda::observe
