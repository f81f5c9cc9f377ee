// SPDX-License-Identifier: Apache-2.0
#pragma once

// The border function of submissions over a ring of the test's own, and one segment behind it.

#include <memory>
#include <string>
#include <vector>

#include "daemon/submit/intake.h"
#include "tests/kit/flow_maker.h"
#include "tests/kit/memory_ring.h"

namespace rueda::submit::test {

using kit::MemoryRing;
using kit::submissionSlots;
using shm::Code;
using shm::DType;
using shm::EntryType;
using shm::OpKind;
using shm::ReduceOp;
using shm::Result;
using shm::SubmissionEntry;
using shm::TailEntry;

constexpr uint64_t kBytes = 4096;
constexpr uint32_t kOwn = 3;

// A ring and the one segment that its client owns.
class Border {
 public:
  Border() : segment_(kit::makeSegment(kOwn, 0, kBytes)) {}

  Result<Item> parse(const std::vector<TailEntry>& slots) {
    kit::publish(&ring_.producer, slots);
    const auto lookup = [this](uint32_t id) -> std::shared_ptr<const flow::Segment> {
      return id == kOwn ? segment_ : nullptr;
    };
    const auto placeIn = [this](flow::SetId set) -> std::optional<Place> {
      if (set != 0) return std::nullopt;
      return Place{rank, size};
    };
    auto item = submit::parseSubmission(ring_.consumer, ring_.consumer.available(),
                                        {lookup, rank, placeIn}, &slots_);
    ring_.consumer.consume(static_cast<uint32_t>(slots.size()));
    return item;
  }
  Result<Item> parse(const SubmissionEntry& entry, const std::vector<int64_t>& shape = {16},
                     const std::string& name = "x") {
    return parse(submissionSlots(entry, shape, name));
  }
  uint32_t slots() const { return slots_; }
  const char* memory() const { return segment_->mapping.data(); }

  int rank = 0;
  int size = 3;

 private:
  MemoryRing ring_;
  std::shared_ptr<flow::Segment> segment_;
  uint32_t slots_ = 0;
};

// A float32 allreduce in place.
inline SubmissionEntry valid() {
  SubmissionEntry entry{};
  entry.type = static_cast<uint8_t>(EntryType::kSubmit);
  entry.kind = static_cast<uint8_t>(OpKind::kAllreduce);
  entry.dtype = static_cast<uint8_t>(DType::kFloat32);
  entry.reduceOp = static_cast<uint8_t>(ReduceOp::kSum);
  entry.requestId = 5;
  entry.inSegment = entry.outSegment = kOwn;
  entry.prescale = entry.postscale = 1;
  return entry;
}

// The reason why the session must be closed; "" if it must not.
inline std::string refusal(const Result<Item>& item) {
  if (item.isOk()) return "";
  return item.status().code() == Code::kProtocolError ? item.status().message() : "wrong code";
}

}  // namespace rueda::submit::test
