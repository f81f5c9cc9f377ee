// SPDX-License-Identifier: Apache-2.0

// Submissions of operations that deal out rows.

#include <catch2/catch.hpp>

#include "tests/submit/border.h"

namespace rueda::submit::test {

using flow::Request;

TEST_CASE("splits follow the dimensions, one for each rank, and fit the rows") {
  Border border;
  SubmissionEntry entry = valid();
  entry.kind = static_cast<uint8_t>(OpKind::kAlltoall);
  entry.outSegment = 99;  // Has none.
  const auto with = [&](std::vector<int64_t> splits, uint64_t count) {
    entry.extra = count;
    // As further dimensions, which the kit writes in front of the name.
    splits.insert(splits.begin(), {8, 2});
    auto slots = submissionSlots(entry, splits, "rows");
    reinterpret_cast<SubmissionEntry*>(slots.data())->ndim = 2;
    return border.parse(slots);
  };
  const auto item = with({3, 0, 4}, 3);
  REQUIRE(item.isOk());
  const auto& request = std::get<Request>(item.value());
  CHECK(request.name == "rows");
  CHECK(request.spec.shape == std::vector<int64_t>{8, 2});
  CHECK(request.spec.splits == std::vector<int64_t>{3, 0, 4});
  CHECK(request.spec.rowsFor(2, 3).begin == 3);
  CHECK(request.spec.rowsFor(2, 3).count == 4);
  CHECK(refusal(with({3, 0, 6}, 3)) == "splits of more than the 8 rows");
  CHECK(refusal(with({9, 0, 0}, 3)) == "splits of more than the 8 rows");
  CHECK(refusal(with({-1, 0, 0}, 3)) == "splits of more than the 8 rows");
  CHECK(refusal(with({4, 4}, 2)) == "2 splits for 3 ranks");
  CHECK(refusal(with({}, 0)) == "0 splits for 3 ranks");
  CHECK(refusal(with({1, 1, 1}, 65)) == "2 dimensions, 65 numbers or a name of 4 bytes");
  CHECK(refusal(with({1, 1, 1}, uint64_t{1} << 61)) != "");
}

TEST_CASE("the output of a reducescatter holds this rank's rows, away from its input") {
  Border border;
  SubmissionEntry entry = valid();
  entry.kind = static_cast<uint8_t>(OpKind::kReducescatter);
  entry.inOffset = 256;
  const auto at = [&](uint64_t offset) {
    entry.outOffset = offset;
    return refusal(border.parse(entry, {7, 4}, "t"));  // 112 bytes; 48 or 32 of a rank.
  };
  border.rank = 0;
  CHECK(at(208) == "");
  CHECK(at(368) == "");
  CHECK(at(209) == "input and output of 't' overlap partly");
  CHECK(at(367) == "input and output of 't' overlap partly");
  CHECK(at(256) == "input and output of 't' overlap partly");
  CHECK(at(kBytes - 48) == "");
  CHECK(at(kBytes - 47) != "");
  border.rank = 2;
  CHECK(at(224) == "");
  CHECK(at(kBytes - 32) == "");
}

}  // namespace rueda::submit::test
