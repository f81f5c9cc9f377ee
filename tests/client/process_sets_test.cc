// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/process_sets.h"

#include <catch2/catch.hpp>

using rueda::client::ProcessSets;

TEST_CASE("a set is known with its ranks until it is removed") {
  ProcessSets sets(2, 4);
  CHECK(sets.placeIn(0).value().place == 2);
  sets.add(1, {0, 2, 3});
  CHECK(sets.placeIn(1).value().place == 1);
  CHECK(sets.placeIn(1).value().size == 3);
  CHECK(sets.hasRank(1, 3));
  CHECK_FALSE(sets.hasRank(1, 1));
  CHECK(sets.placeOf(1, 3).value() == 2);
  sets.remove(1, sets.serialOf(1));
  CHECK(sets.placeIn(1).status().message() == "there is no process set 1");
  CHECK(sets.serialOf(1) == 0);
  // Place 0, it said once: then a root that was not the first rank gave way to one that was.
  CHECK(sets.placeOf(1, 3).status().message() == "there is no process set 1");
}

// Once the thread that removed a set, late to hear of it, removed the next one of that number.
TEST_CASE("what was agreed on a number that another set has by now does not touch that one") {
  ProcessSets sets(0, 2);
  sets.add(1, {0});
  const uint64_t first = sets.serialOf(1);
  sets.add(1, {0, 1});
  sets.remove(1, first);
  CHECK(sets.hasRank(1, 1));
}
