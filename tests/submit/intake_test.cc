// SPDX-License-Identifier: Apache-2.0
#include "daemon/submit/intake.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <limits>

#include "tests/submit/border.h"

namespace rueda::submit::test {

using flow::Request;

TEST_CASE("a submission becomes a request with all of its fields") {
  Border border;
  SubmissionEntry entry = valid();
  entry.kind = static_cast<uint8_t>(OpKind::kBroadcast);
  entry.dtype = static_cast<uint8_t>(DType::kFloat16);
  entry.reduceOp = static_cast<uint8_t>(ReduceOp::kMax);
  entry.flags = rueda::shm::kFlagBlocking | rueda::shm::kFlagFallback | rueda::shm::kFlagThreads |
                rueda::shm::kFlagAmong;
  entry.inOffset = 64;
  entry.outOffset = 1024;
  entry.prescale = 0.25;
  entry.postscale = -3;
  entry.root = -7;  // Whether it is a rank is agreed on, not parsed.
  entry.directIndex = 99;
  entry.groupSize = 4;
  entry.groupId = 8;
  const auto item = border.parse(entry, {2, 3}, "layer.weight");
  REQUIRE(item.isOk());
  const auto* request = std::get_if<Request>(&item.value());
  REQUIRE(request != nullptr);
  CHECK(request->requestId == 5);
  CHECK(request->threads);
  CHECK(request->name == "layer.weight");
  CHECK(request->spec.kind == OpKind::kBroadcast);
  CHECK(request->spec.dtype == DType::kFloat16);
  CHECK(request->spec.op == ReduceOp::kMax);
  CHECK(request->spec.shape == std::vector<int64_t>{2, 3});
  CHECK(request->spec.count == 6);
  CHECK(request->spec.bytes() == 12);
  CHECK(request->spec.prescale == 0.25);
  CHECK(request->spec.postscale == -3);
  CHECK(request->spec.root == -7);
  CHECK(request->input.data() == border.memory() + 64);
  CHECK(request->output.data() == border.memory() + 1024);
  CHECK(request->fallback);
  CHECK(request->blocking);
  CHECK(request->threads);
  CHECK(request->among);
  CHECK(request->directIndex == 99);
  CHECK(request->group != 0);
  CHECK(request->groupSize == 4);
  CHECK(border.slots() == 1);
}

TEST_CASE("tails of every length come back whole, over as many slots as they need") {
  Border border;
  // Around the borders of the first slot (48 bytes) and of the following ones (120).
  const size_t nameBytes = GENERATE(0, 1, 39, 40, 41, 47, 48, 159, 160, 161, 1023, 1024);
  const bool isScalar = GENERATE(true, false);
  std::string name;
  for (size_t i = 0; i < nameBytes; ++i) name += static_cast<char>('a' + i % 26);
  const std::vector<int64_t> shape = isScalar ? std::vector<int64_t>{} : std::vector<int64_t>{16};
  const auto slots = submissionSlots(valid(), shape, name);
  const auto item = border.parse(slots);
  REQUIRE(item.isOk());
  CHECK(std::get<Request>(item.value()).name == name);
  CHECK(std::get<Request>(item.value()).spec.shape == shape);
  CHECK(border.slots() == slots.size());
}

TEST_CASE("a submission may say when it was made, between the numbers and the name") {
  Border border;
  const bool isStamped = GENERATE(true, false);
  const std::string name(GENERATE(1, 24, 25, 200), 'n');
  auto slots = submissionSlots(valid(), {16, 123456789}, name);
  SubmissionEntry first;
  std::memcpy(&first, slots.data(), sizeof first);
  first.ndim = isStamped ? 1 : 2;
  first.flags = isStamped ? rueda::shm::kFlagStamped | rueda::shm::kFlagTimed : 0;
  first.inSegment = first.outSegment = isStamped ? kOwn : 0;
  if (!isStamped) first.kind = static_cast<uint8_t>(OpKind::kBarrier);
  std::memcpy(slots.data(), &first, sizeof first);
  const auto item = border.parse(slots);
  REQUIRE(item.isOk());
  const Request& request = std::get<Request>(item.value());
  CHECK(request.name == name);
  CHECK(request.timed == isStamped);
  CHECK(request.submittedNs == (isStamped ? 123456789 : 0));
  CHECK(request.spec.shape.size() == (isStamped ? 1 : 2));
}

TEST_CASE("64 dimensions are the most, and they fill slots of their own") {
  Border border;
  CHECK(border.parse(valid(), std::vector<int64_t>(64, 1), "x").isOk());
  CHECK(border.slots() > 4);
  CHECK(refusal(border.parse(valid(), std::vector<int64_t>(65, 1), "x")) ==
        "65 dimensions, 0 numbers or a name of 1 bytes");
}

TEST_CASE("a name of 1025 bytes is one too long") {
  Border border;
  CHECK(refusal(border.parse(valid(), {16}, std::string(1025, 'n'))) ==
        "1 dimensions, 0 numbers or a name of 1025 bytes");
  CHECK(refusal(border.parse(valid(), {16}, std::string(65535, 'n'))) != "");
}

TEST_CASE("values that are not in their enums are refused") {
  Border border;
  for (int value = 0; value < 256; ++value) {
    const auto byte = static_cast<uint8_t>(value);
    SubmissionEntry kind = valid();
    kind.kind = byte;
    // Those that take no numbers of their own and may be in place.
    CHECK((refusal(border.parse(kind)) == "") == (value <= 3 || value == 6 || value == 7));
    SubmissionEntry dtype = valid();
    dtype.dtype = byte;
    CHECK((refusal(border.parse(dtype)) == "") == (value <= 16));
    SubmissionEntry op = valid();
    op.reduceOp = byte;
    CHECK((refusal(border.parse(op)) == "") == (value <= 5));
    SubmissionEntry type = valid();
    type.type = byte;
    CHECK((refusal(border.parse(type)) == "") == (value >= 2 && value <= 8));
  }
}

TEST_CASE("dimensions that are negative, or whose product is too large, are refused") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Border border;
  const std::vector<int64_t> shape = GENERATE(
      std::vector<int64_t>{-1}, std::vector<int64_t>{16, -1},
      std::vector<int64_t>{std::numeric_limits<int64_t>::min()}, std::vector<int64_t>{kMost},
      std::vector<int64_t>{kMost, kMost}, std::vector<int64_t>{int64_t{1} << 32, int64_t{1} << 32},
      std::vector<int64_t>{(int64_t{1} << 48) + 1}, std::vector<int64_t>{kMost, 2, 0});
  CHECK_THAT(refusal(border.parse(valid(), shape)), Catch::Contains("makes an impossible tensor"));
}

TEST_CASE("a tensor of no elements needs no memory, wherever it claims to lie") {
  Border border;
  SubmissionEntry entry = valid();
  entry.inSegment = 77;
  entry.outOffset = std::numeric_limits<uint64_t>::max();
  const auto item = border.parse(entry, {5, 0, int64_t{1} << 40});
  REQUIRE(item.isOk());
  const auto& request = std::get<Request>(item.value());
  CHECK(request.spec.count == 0);
  CHECK(request.input.data() == nullptr);
  CHECK(request.output.data() == nullptr);
}

TEST_CASE("memory must lie inside the rank's own segments, to the last byte") {
  struct Variant {
    uint32_t segment;
    uint64_t offset;
    int64_t count;
    const char* reason;  // nullptr: fine.
  };
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const std::vector<Variant> variants = {
      {kOwn, 0, 1024, nullptr},
      {kOwn, kBytes - 4, 1, nullptr},
      {kOwn, kBytes - 3, 1, "leaves segment 3 of 4096 bytes"},
      {kOwn, 0, 1025, "leaves segment 3 of 4096 bytes"},
      {kOwn, kBytes, 1, "leaves segment"},
      {kOwn, kMost, 1, "leaves segment"},
      {kOwn, kMost - 3, 1, "leaves segment"},
      {kOwn, 0, int64_t{1} << 48, "leaves segment"},
      {0, 0, 1, "segment 0 is not one of this rank's"},
      {4, 0, 1, "segment 4 is not one of this rank's"},
      {0xffffffff, 0, 1, "segment 4294967295 is not one of this rank's"},
  };
  Border border;
  for (const Variant& variant : variants) {
    const bool isInput = GENERATE(true, false);
    SubmissionEntry entry = valid();
    (isInput ? entry.inSegment : entry.outSegment) = variant.segment;
    (isInput ? entry.inOffset : entry.outOffset) = variant.offset;
    // The other end stays out of the way: the same place, or one that is tested elsewhere.
    if (variant.reason == nullptr) entry.outOffset = entry.inOffset = variant.offset;
    const std::string reason = refusal(border.parse(entry, {variant.count}));
    if (variant.reason == nullptr)
      CHECK(reason == "");
    else
      CHECK(reason != "");
    if (variant.reason != nullptr && isInput) CHECK_THAT(reason, Catch::Contains(variant.reason));
  }
}

TEST_CASE("input and output may be one, or apart, but not overlap partly") {
  Border border;
  SubmissionEntry entry = valid();
  entry.inOffset = 256;
  const auto at = [&](uint64_t offset) {
    entry.outOffset = offset;
    return refusal(border.parse(entry, {16}, "t"));  // 64 bytes.
  };
  CHECK(at(256) == "");
  CHECK(at(320) == "");
  CHECK(at(192) == "");
  for (const uint64_t offset : {193u, 255u, 257u, 319u})
    CHECK(at(offset) == "input and output of 't' overlap partly");
}

TEST_CASE("a gather has an input only, a barrier has no memory at all") {
  Border border;
  SubmissionEntry entry = valid();
  entry.outSegment = 99;
  entry.kind = static_cast<uint8_t>(OpKind::kAllgather);
  CHECK(border.parse(entry).isOk());
  entry.inSegment = 99;
  CHECK(refusal(border.parse(entry)) != "");
  entry.kind = static_cast<uint8_t>(OpKind::kBarrier);
  CHECK(border.parse(entry).isOk());
}

TEST_CASE(
    "a scalar to gather is taken, without memory: all ranks hear together that it has no rows") {
  Border border;
  SubmissionEntry entry = valid();
  entry.kind = static_cast<uint8_t>(OpKind::kAllgather);
  const auto item = border.parse(entry, {}, "loss");
  REQUIRE(item.isOk());
  const auto* request = std::get_if<rueda::flow::Request>(&item.value());
  REQUIRE(request != nullptr);
  CHECK(request->requestId == 5);
  CHECK(request->input.segment == nullptr);
}

TEST_CASE("an operation in a set that the rank does not belong to is told so") {
  Border border;
  SubmissionEntry entry = valid();
  entry.processSet = 7;
  const auto item = border.parse(entry, {16}, "loss");
  REQUIRE(item.isOk());
  const auto* invalid = std::get_if<rueda::submit::Invalid>(&item.value());
  REQUIRE(invalid != nullptr);
  CHECK(invalid->requestId == 5);
  CHECK(invalid->status.message() == "allreduce 'loss': rank 0 does not belong to process set 7");
}

TEST_CASE("an operation that comes from the board of a removed set is told so") {
  Border border;
  SubmissionEntry entry = valid();
  entry.processSet = 7;
  entry.flags = rueda::shm::kFlagFallback;
  const auto item = border.parse(entry, {16}, "loss");
  REQUIRE(item.isOk());
  const auto* invalid = std::get_if<rueda::submit::Invalid>(&item.value());
  REQUIRE(invalid != nullptr);
  CHECK(invalid->status.code() == Code::kUnavailable);
  CHECK(invalid->status.message() == "process set 7 was removed while the operation waited in it");
}

TEST_CASE("groups have a bound, and none is a group of one") {
  Border border;
  SubmissionEntry entry = valid();
  entry.groupId = 7;
  for (const uint32_t size : {0u, 1u}) {
    entry.groupSize = size;
    const auto item = border.parse(entry);
    REQUIRE(item.isOk());
    CHECK(std::get<Request>(item.value()).group == 0);
    CHECK(std::get<Request>(item.value()).groupSize == 1);
  }
  entry.groupSize = rueda::shm::kMaxInFlight;
  CHECK(border.parse(entry).isOk());
  entry.groupSize = rueda::shm::kMaxInFlight + 1;
  CHECK(refusal(border.parse(entry)) == "group of 16385 operations");
}

TEST_CASE("a tail must follow its entry, and nothing else may") {
  Border border;
  auto slots = submissionSlots(valid(), {16}, std::string(300, 'n'));
  REQUIRE(slots.size() == 4);
  SECTION("one that is not a tail in between") {
    slots[2].type = static_cast<uint8_t>(EntryType::kSubmit);
    CHECK(refusal(border.parse(slots)) == "entry type 2 where a tail must follow");
  }
  SECTION("published in part") {
    slots.pop_back();
    CHECK(refusal(border.parse(slots)) == "submission whose tail was not published with it");
  }
  SECTION("a tail without its entry") {
    slots.erase(slots.begin());
    CHECK(refusal(border.parse(slots)) != "");
  }
}

TEST_CASE("wait notes say what a thread sleeps in") {
  Border border;
  SubmissionEntry entry = valid();
  entry.directIndex = 12;
  entry.type = static_cast<uint8_t>(EntryType::kWaitDirect);
  auto item = border.parse(entry, {2, 2}, "grad");
  REQUIRE(item.isOk());
  const auto direct = std::get<rueda::submit::WaitNote>(item.value());
  CHECK(direct.kind == rueda::submit::WaitNote::Kind::kDirect);
  CHECK(direct.requestId == 5);
  CHECK(direct.directIndex == 12);
  CHECK(direct.name == "grad");
  CHECK(direct.spec.shape == std::vector<int64_t>{2, 2});
  CHECK_FALSE(direct.threads);
  entry.dtype = 200;
  CHECK(refusal(border.parse(entry)) != "");
  entry.type = static_cast<uint8_t>(EntryType::kWaitRequest);
  entry.flags = rueda::shm::kFlagThreads;
  item = border.parse(entry, {}, "grad");
  REQUIRE(item.isOk());
  CHECK(std::get<rueda::submit::WaitNote>(item.value()).threads);
  CHECK(std::get<rueda::submit::WaitNote>(item.value()).kind ==
        rueda::submit::WaitNote::Kind::kRequest);
  entry.type = static_cast<uint8_t>(EntryType::kWaitEnd);
  item = border.parse(entry, {}, "");
  REQUIRE(item.isOk());
  CHECK(std::get<rueda::submit::WaitNote>(item.value()).kind ==
        rueda::submit::WaitNote::Kind::kEnd);
}

TEST_CASE("who leaves a board names its process set") {
  Border border;
  SubmissionEntry entry = valid();
  entry.type = static_cast<uint8_t>(EntryType::kLeaveSet);
  entry.processSet = 9;
  const auto item = border.parse(entry, {}, "");
  REQUIRE(item.isOk());
  CHECK(std::get<rueda::submit::Leave>(item.value()).set == 9);
}

TEST_CASE("a release and a fetch name their gather; a fetch knows its room") {
  Border border;
  SubmissionEntry entry = valid();
  entry.type = static_cast<uint8_t>(EntryType::kRelease);
  auto item = border.parse(entry, {}, "");
  REQUIRE(item.isOk());
  CHECK(std::get<rueda::submit::Release>(item.value()).requestId == 5);
  entry.type = static_cast<uint8_t>(EntryType::kFetch);
  entry.extra = 4;
  entry.outOffset = 96;
  item = border.parse(entry, {}, "");
  REQUIRE(item.isOk());
  const auto& fetch = std::get<rueda::submit::Fetch>(item.value());
  CHECK(fetch.requestId == 5);
  CHECK(fetch.gatherId == 4);
  CHECK(fetch.output.data() == border.memory() + 96);
  CHECK(fetch.room == kBytes - 96);
  entry.outOffset = kBytes;
  CHECK(refusal(border.parse(entry, {}, "")) != "");
  entry.outOffset = 0;
  entry.outSegment = 9;
  CHECK(refusal(border.parse(entry, {}, "")) != "");
}

TEST_CASE("scales of any bits pass: they are compared and multiplied, nothing more") {
  Border border;
  SubmissionEntry entry = valid();
  entry.prescale = std::numeric_limits<double>::quiet_NaN();
  entry.postscale = -std::numeric_limits<double>::infinity();
  CHECK(border.parse(entry).isOk());
}

}  // namespace rueda::submit::test
