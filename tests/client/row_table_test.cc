// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/row_table.h"

#include <catch2/catch.hpp>

#include "shm/layout.h"

using rueda::client::RowTable;

TEST_CASE("an allgather gives all rows of a rank to everyone, in rank order") {
  RowTable table;
  table.reset(3, 8, true);
  REQUIRE((table.setGiver(0, 2, nullptr) && table.setGiver(1, 0, nullptr) &&
           table.setGiver(2, 5, nullptr)));
  CHECK(table.bytes(2, 1) == 40);
  CHECK(table.begin(2, 1) == 0);
  CHECK(table.place(2, 0) == 16);
  CHECK(table.total(0) == 56);
  CHECK(table.inputBytes(1) == 0);
}

TEST_CASE("an alltoall deals out rows by the splits of their giver") {
  RowTable table;
  table.reset(2, 4, false);
  const int64_t splits[] = {1, 3};
  REQUIRE((table.setGiver(0, 6, splits) && table.setGiver(1, 4, nullptr)));
  CHECK(table.rows(0, 1) == 3);  // Two are for nobody.
  CHECK(table.rows(1, 1) == 2);  // As many for each.
  CHECK(table.begin(0, 1) == 4);
  CHECK(table.place(1, 1) == 12);
  CHECK(table.total(1) == 20);
  CHECK(table.inputBytes(0) == 24);
}

TEST_CASE("rows that cannot be are refused") {
  RowTable table;
  table.reset(2, 16, false);
  const int64_t negative[] = {-1, 1};
  const int64_t tooMany[] = {2, 2};
  const int64_t wrapping[] = {INT64_MAX, INT64_MAX};
  CHECK_FALSE(table.setGiver(0, 3, negative));
  CHECK_FALSE(table.setGiver(0, 3, tooMany));
  CHECK_FALSE(table.setGiver(0, 3, wrapping));
  CHECK_FALSE(table.setGiver(0, rueda::shm::kMaxElements + 1, nullptr));
  CHECK(table.setGiver(0, rueda::shm::kMaxElements, nullptr));
}

TEST_CASE("rows of no bytes may be as many as there are numbers") {
  RowTable table;
  table.reset(2, 0, true);
  CHECK(table.setGiver(0, INT64_MAX, nullptr));
  CHECK(table.total(0) == 0);
}
