// SPDX-License-Identifier: Apache-2.0
#pragma once

// Border function of the ring: entries that a client wrote become checked values, or a reason to
// close its session. It works on private copies only. Pure but for the segment lookup; fuzzed.

#include <functional>
#include <memory>
#include <optional>
#include <variant>

#include "daemon/flow/request.h"
#include "shm/layout.h"
#include "shm/spsc_ring.h"
#include "shm/status.h"

namespace rueda::submit {

// A sleeping or waking thread of the client.
struct WaitNote {
  enum class Kind { kDirect, kRequest, kEnd };
  Kind kind = Kind::kEnd;
  uint64_t requestId = 0;
  uint32_t directIndex = 0;
  flow::SetId set = 0;    // kDirect, kRequest
  std::string name;       // kDirect, kRequest
  flow::TensorSpec spec;  // kDirect
  bool threads = false;   // As in flow::Request.
};

struct Release {
  uint64_t requestId = 0;
};

// "I am through with the board of `set`."
struct Leave {
  flow::SetId set = 0;
};

// "Copy the rows of gather `gatherId` to `output`."
struct Fetch {
  uint64_t requestId = 0;
  uint64_t gatherId = 0;
  flow::TensorMemory output;
  uint64_t room = 0;  // Bytes of the segment behind output.offset.
};

// What one submission is; a failed Request check that is the caller's fault, not the protocol's, is
// an Invalid: that request ends with the status and the session goes on.
struct Invalid {
  uint64_t requestId = 0;
  shm::Status status;
};
using Item = std::variant<flow::Request, WaitNote, Release, Leave, Fetch, Invalid>;

// The segment of the session's own rank, or nullptr.
using SegmentLookup = std::function<std::shared_ptr<const flow::Segment>(uint32_t)>;

// Where a rank is in a process set.
struct Place {
  int place = 0;
  int size = 1;  // Of the set.
};

// Whose ring it is.
struct Origin {
  SegmentLookup lookup;
  int rank = 0;
  // nullopt if there is no such set, or the rank is none of it.
  std::function<std::optional<Place>(flow::SetId)> placeIn;
};

// Parses the oldest submission of `available` readable slots of `ring`, its tail included, without
// consuming it. *slots is how many it takes. kProtocolError: the session must be closed.
shm::Result<Item> parseSubmission(const shm::RingConsumer& ring, int64_t available,
                                  const Origin& origin, uint32_t* slots);

}  // namespace rueda::submit
