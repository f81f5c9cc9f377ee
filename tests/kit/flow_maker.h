// SPDX-License-Identifier: Apache-2.0
#pragma once

// Values of daemon/flow for tests that need no daemon: segments, requests of ranks, decisions.

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "daemon/flow/decision.h"
#include "shm/memfd.h"

namespace rueda::kit {

// A mapped segment of zeros, as the daemon makes it.
inline std::shared_ptr<flow::Segment> makeSegment(uint32_t id, int rank, uint64_t bytes) {
  auto segment = std::make_shared<flow::Segment>();
  segment->id = id;
  segment->rank = rank;
  segment->bytes = bytes;
  segment->memfd = std::move(shm::createSealedMemfd("rueda-test", bytes)).value();
  segment->mapping = std::move(shm::Mapping::map(segment->memfd.get(), bytes)).value();
  return segment;
}

// A float32 sum of `count` elements by `rank`, without memory.
inline flow::Request makeRequest(int rank, const std::string& name, uint64_t count = 1) {
  flow::Request request;
  request.rank = request.place = rank;
  request.session = static_cast<flow::SessionId>(rank) + 1;
  request.name = name;
  request.spec.shape = {static_cast<int64_t>(count)};
  request.spec.count = count;
  return request;
}

// The same wish of ranks 0 to size - 1.
inline std::vector<flow::Request> makeRequests(int size, const std::string& name,
                                               uint64_t count = 1) {
  std::vector<flow::Request> requests;
  for (int rank = 0; rank < size; ++rank) requests.push_back(makeRequest(rank, name, count));
  return requests;
}

// The ranks of a job of `size`.
inline std::vector<int> ranksTo(int size) {
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// What they come to, unchecked, as a decision of all of them.
inline flow::Decision makeDecision(std::vector<flow::Request> requests) {
  flow::Decision decision;
  decision.members =
      std::make_shared<const std::vector<int>>(ranksTo(static_cast<int>(requests.size())));
  decision.requests = std::move(requests);
  return decision;
}

}  // namespace rueda::kit
