// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/borders.h"

#include <algorithm>
#include <cstring>

#include "daemon/submit/greeting.h"
#include "shm/region.h"

namespace rueda::fuzz {
namespace {

using shm::Code;

constexpr size_t kRingBytes = size_t{shm::kRingSlots} * shm::kEntryBytes;

// A border function refuses a peer with one of two codes, always with a reason.
std::string checkRefusal(const shm::Status& status) {
  const bool isKnown = status.code() == Code::kProtocolError ||
                       status.code() == Code::kInvalidArgument ||
                       status.code() == Code::kUnimplemented;
  if (!isKnown) return "refused with " + status.toString();
  return status.message().empty() ? "refused without a reason" : "";
}

std::string checkMemory(const flow::TensorMemory& memory, uint64_t bytes) {
  if (!memory.segment) return bytes == 0 ? "" : "bytes without memory";
  return shm::inBounds(memory.offset, bytes, memory.segment->bytes) ? ""
                                                                    : "memory outside the segment";
}

std::string checkSpec(const flow::TensorSpec& spec) {
  if (spec.shape.size() > shm::kMaxDims) return "too many dimensions";
  uint64_t count = 1;
  for (const int64_t dim : spec.shape) {
    if (dim < 0) return "a negative dimension";
    if (__builtin_mul_overflow(count, static_cast<uint64_t>(dim), &count)) return "count overflows";
  }
  if (count != spec.count || count > shm::kMaxElements) return "count is not the shape's";
  return "";
}

constexpr int kRanks = 3;

// Rows for all ranks lie inside the tensor.
std::string checkRows(const flow::TensorSpec& spec) {
  const auto rows = static_cast<uint64_t>(spec.shape.front());
  for (int rank = 0; rank < kRanks; ++rank) {
    const shm::RowRange range = spec.rowsFor(rank, kRanks);
    if (range.begin > rows || range.count > rows - range.begin) return "rows outside the tensor";
  }
  return "";
}

// A rank that cannot take part says why, and brings nothing.
std::string checkRefused(const flow::Request& request) {
  if (request.refusal.code() != Code::kResourceExhausted) return "a refusal of another kind";
  if (request.refusal.message().size() > size_t{4} * shm::kMaxReasonBytes) return "a long reason";
  const bool isTold = !shm::isAgreement(request.spec.kind);
  return isTold && !request.input.segment && !request.output.segment ? "" : "refused with memory";
}

struct ItemCheck {
  std::string operator()(const flow::Request& request) const {
    if (request.name.size() > shm::kMaxNameBytes) return "a long name";
    if (request.groupSize < 1 || request.groupSize > shm::kMaxInFlight) return "a group too large";
    std::string wrong = checkSpec(request.spec);
    if (wrong.empty() && !request.refusal.isOk()) return checkRefused(request);
    if (!wrong.empty() || shm::isAgreement(request.spec.kind)) return wrong;
    // Refused when the ranks are compared; its memory is not looked at.
    if (shm::needsRows(request.spec.kind) && request.spec.shape.empty())
      return request.input.segment || request.output.segment ? "memory of no use" : "";
    wrong = checkMemory(request.input, request.spec.bytes());
    if (wrong.empty() && shm::needsRows(request.spec.kind)) wrong = checkRows(request.spec);
    if (!wrong.empty() || shm::gathers(request.spec.kind)) return wrong;
    if (request.spec.kind != shm::OpKind::kReducescatter)
      return checkMemory(request.output, request.spec.bytes());
    const shm::RowRange own = request.spec.rowsFor(request.place, kRanks);
    return checkMemory(request.output,
                       own.count * request.spec.rowElements() * shm::dtypeSize(request.spec.dtype));
  }
  std::string operator()(const submit::WaitNote& note) const {
    if (note.name.size() > shm::kMaxNameBytes) return "a long name";
    return note.kind == submit::WaitNote::Kind::kDirect ? checkSpec(note.spec) : "";
  }
  std::string operator()(const submit::Release&) const { return ""; }
  std::string operator()(const submit::Leave&) const { return ""; }
  std::string operator()(const submit::Fetch& fetch) const {
    if (!fetch.output.segment) return "a fetch to nowhere";
    return checkMemory(fetch.output, fetch.room);
  }
  std::string operator()(const submit::Invalid& invalid) const {
    if (invalid.status.isOk()) return "invalid without an error";
    const bool isOfRemovedSet = invalid.status.code() == Code::kUnavailable;
    return isOfRemovedSet ? "" : checkRefusal(invalid.status);
  }
};

// The slots of one input in a ring of this process; zeroed between inputs by whoever wrote them.
struct Ring {
  alignas(shm::kEntryBytes) char slots[kRingBytes] = {};
};

}  // namespace

submit::Origin origin() {
  static const std::shared_ptr<const flow::Segment> known = [] {
    auto made = std::make_shared<flow::Segment>();
    made->id = kSegment;
    made->bytes = kSegmentBytes;
    return made;
  }();
  const auto placeIn = [](flow::SetId set) -> std::optional<submit::Place> {
    if (set > 1) return std::nullopt;
    return submit::Place{1, kRanks};
  };
  return {[](uint32_t segment) { return segment == kSegment ? known : nullptr; }, 1, placeIn};
}

std::string checkItem(const submit::Item& item) { return std::visit(ItemCheck(), item); }

std::string checkIntake(const uint8_t* data, size_t size, int* parsed) {
  if (size < kIntakeHeaderBytes) return "";
  uint32_t first = 0;
  uint32_t ahead = 0;
  std::memcpy(&first, data, sizeof first);
  std::memcpy(&ahead, data + sizeof first, sizeof ahead);
  static thread_local const auto ring = std::make_unique<Ring>();
  const size_t bytes = std::min(size - kIntakeHeaderBytes, kRingBytes);
  const size_t begin = size_t{first % shm::kRingSlots} * shm::kEntryBytes;
  const size_t unwrapped = std::min(bytes, kRingBytes - begin);
  std::memcpy(ring->slots + begin, data + kIntakeHeaderBytes, unwrapped);
  std::memcpy(ring->slots, data + kIntakeHeaderBytes + unwrapped, bytes - unwrapped);

  const std::atomic<uint32_t> tail{first + ahead};
  std::atomic<uint32_t> head{0};
  shm::RingConsumer consumer(ring->slots, &tail, &head);
  consumer.consume(first);
  std::string wrong;
  int64_t available = consumer.available();
  while (available > 0 && wrong.empty()) {
    uint32_t slots = 0;
    const auto item = submit::parseSubmission(consumer, available, origin(), &slots);
    if (!item.isOk()) {
      wrong = checkRefusal(item.status());
      break;
    }
    wrong =
        slots < 1 || slots > available ? "took slots that were not there" : checkItem(item.value());
    if (parsed != nullptr) ++*parsed;
    consumer.consume(slots);
    available = consumer.available();
  }
  std::memset(ring->slots + begin, 0, unwrapped);
  std::memset(ring->slots, 0, bytes - unwrapped);
  return wrong;
}

std::string checkGreeting(const uint8_t* data, size_t size, int* accepted) {
  if (size < 1) return "";
  shm::Packet packet;
  packet.fds.resize(data[0] % (shm::kMaxFdsPerMessage + 1));
  packet.bytes = std::min<size_t>(size - 1, shm::kMaxMessageBytes);
  std::memcpy(packet.data.data(), data + 1, packet.bytes);
  const auto greeting = submit::parseGreeting(packet);
  if (!greeting.isOk()) return checkRefusal(greeting.status());
  if (accepted != nullptr) *accepted = 1;
  const submit::Greeting& g = greeting.value();
  if (g.protocol < shm::kProtocolMin || g.protocol > shm::kProtocolMax) return "a wrong protocol";
  if (g.job.empty() || g.job.size() > 127 || g.hostname.size() > 255) return "a text too long";
  if (g.size < 1 || g.size > static_cast<int>(shm::kMaxRanks) || g.rank < 0 || g.rank >= g.size)
    return "an impossible rank";
  if (g.localSize != g.size || g.localRank < 0 || g.localRank >= g.localSize)
    return "an impossible local rank";
  if (g.startTimeoutMs == 0) return "no time to start";
  return g.knobs.cycleMicros > shm::kMaxCycleMicros ? "an endless cycle" : "";
}

}  // namespace rueda::fuzz
