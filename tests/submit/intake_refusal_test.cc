// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/submit/border.h"

namespace rueda::submit::test {

using flow::Request;

namespace {

// Ends the name in the first slot of a submission earlier: what follows is a reason.
TailEntry withNameBytes(TailEntry slot, uint16_t nameBytes) {
  SubmissionEntry entry;
  std::memcpy(&entry, &slot, sizeof entry);
  entry.nameBytes = nameBytes;
  std::memcpy(&slot, &entry, sizeof entry);
  return slot;
}

}  // namespace

TEST_CASE("a rank that cannot take part says why, behind the name, and has no memory to check") {
  Border border;
  const std::string reason(GENERATE(0, 1, 31, 32, 199, 200), 'w');
  SubmissionEntry entry = valid();
  entry.flags = rueda::shm::kFlagRefused;
  entry.inSegment = static_cast<uint32_t>(Code::kResourceExhausted);
  entry.outSegment = static_cast<uint32_t>(reason.size());
  entry.inOffset = ~uint64_t{0};
  auto slots = submissionSlots(entry, {16}, "x" + reason);
  slots[0] = withNameBytes(slots[0], 1);
  const auto item = border.parse(slots);
  REQUIRE(item.isOk());
  const Request& request = std::get<Request>(item.value());
  CHECK(request.name == "x");
  CHECK(request.refusal.code() == Code::kResourceExhausted);
  CHECK(request.refusal.message() == reason);
  CHECK(request.input.data() == nullptr);
  CHECK(border.slots() == slots.size());
}

TEST_CASE(
    "a reason is short and printable, its code one that lacks memory, its operation has some") {
  Border border;
  const auto parse = [&border](OpKind kind, uint32_t code, uint32_t bytes) {
    SubmissionEntry entry = valid();
    entry.kind = static_cast<uint8_t>(kind);
    entry.flags = rueda::shm::kFlagRefused;
    entry.inSegment = code;
    entry.outSegment = bytes;
    auto slots = submissionSlots(entry, {}, "x\n");
    slots[0] = withNameBytes(slots[0], 1);
    return border.parse(slots);
  };
  constexpr auto kCode = static_cast<uint32_t>(Code::kResourceExhausted);
  const auto item = parse(OpKind::kAllreduce, kCode, 1);
  REQUIRE(item.isOk());
  CHECK(std::get<Request>(item.value()).refusal.message() == "\\x0a");
  for (const uint32_t code : {0u, 4u, 17u, 0xffffffffu})
    CHECK(refusal(parse(OpKind::kAllreduce, code, 1)) ==
          "allreduce 'x' refused with code " + std::to_string(code));
  for (const OpKind kind : {OpKind::kBarrier, OpKind::kJoin, OpKind::kAddSet, OpKind::kRemoveSet})
    CHECK_THAT(refusal(parse(kind, kCode, 1)), Catch::Contains("'x' refused with code 9"));
  CHECK(refusal(parse(OpKind::kAllreduce, kCode, 201)) == "a reason of 201 bytes");
  CHECK(refusal(parse(OpKind::kAllreduce, kCode, ~0u)) == "a reason of 4294967295 bytes");
  CHECK(refusal(parse(OpKind::kAllreduce, kCode, 200)) ==
        "submission whose tail was not published with it");
}

}  // namespace rueda::submit::test
