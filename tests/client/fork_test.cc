// SPDX-License-Identifier: Apache-2.0

// What a forked child does to memory of the session that it has inherited.

#include <catch2/catch.hpp>

#include "tests/kit/child.h"
#include "tests/kit/two_ranks.h"

namespace {

using rueda::kit::DaemonFixture;
using rueda::kit::TwoRanks;

}  // namespace

TEST_CASE("what a forked child writes to its memory stays there") {
  // Once a data loader that zeroed a gradient zeroed that of its parent.
  DaemonFixture daemon;
  TwoRanks two(daemon);
  REQUIRE(two.areOpen());
  const auto allocated = two.clients[0]->memory().allocate(1 << 20);
  REQUIRE(allocated.isOk());
  volatile char* const values = allocated.value();
  values[5] = 7;
  rueda::kit::Child child([&] {
    if (values[5] != 7) return 1;
    values[5] = 9;
    values[1 << 19] = 9;
    return values[5] == 9 && values[1 << 19] == 9 ? 0 : 2;
  });
  CHECK(child.wait() == 0);
  CHECK(values[5] == 7);
  CHECK(values[1 << 19] == 0);
}

TEST_CASE("a session opened after one has ended, and in a child of a child, is its own") {
  DaemonFixture daemon;
  { const TwoRanks ended(daemon); }
  TwoRanks two(daemon);
  REQUIRE(two.areOpen());
  rueda::kit::Child child([&] {
    rueda::kit::Child grandchild([&] { return two.clients[0]->isForked() ? 0 : 1; });
    return two.clients[1]->isForked() ? grandchild.wait() : 2;
  });
  CHECK(child.wait() == 0);
  CHECK_FALSE(two.clients[0]->isForked());
}
