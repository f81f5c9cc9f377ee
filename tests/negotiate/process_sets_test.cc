// SPDX-License-Identifier: Apache-2.0
#include "daemon/negotiate/process_sets.h"

#include <catch2/catch.hpp>

#include "shm/board.h"
#include "tests/kit/flow_maker.h"

namespace {

using rueda::flow::Request;
using rueda::negotiate::ProcessSets;
using rueda::shm::Code;

Request requestOf(int rank, int place, rueda::flow::SetId set) {
  Request request = rueda::kit::makeRequest(rank, "x");
  request.place = place;
  request.set = set;
  return request;
}

}  // namespace

TEST_CASE("a job begins with the set of all its ranks") {
  ProcessSets sets(1, 3);
  REQUIRE(sets.find(0) != nullptr);
  CHECK(sets.find(0)->members() == std::vector<int>{0, 1, 2});
  CHECK(sets.find(1) == nullptr);
  CHECK(sets.active().empty());
}

TEST_CASE("numbers of sets count from 1, and those given back are used again, oldest first") {
  ProcessSets sets(1, 4);
  std::vector<Request> waiting;
  CHECK(sets.add({0, 1}).value() == 1);
  CHECK(sets.add({2, 3}).value() == 2);
  CHECK(sets.add({1}).value() == 3);
  REQUIRE(sets.remove(2, &waiting).isOk());
  REQUIRE(sets.remove(1, &waiting).isOk());
  CHECK(sets.find(1) == nullptr);
  for (const rueda::flow::SetId id : {2, 1}) sets.giveBack(id);
  CHECK(sets.add({0, 3}).value() == 2);
  CHECK(sets.add({0, 2}).value() == 1);
  CHECK(sets.add({0, 1, 2}).value() == 4);
}

TEST_CASE("the number of a removed set is not given out again before it is given back") {
  ProcessSets sets(1, 4);
  std::vector<Request> waiting;
  REQUIRE(sets.add({0, 2}).isOk());
  REQUIRE(sets.remove(1, &waiting).isOk());
  CHECK(sets.add({0, 2}).value() == 2);
  sets.giveBack(1);
  CHECK(sets.add({1}).value() == 1);
}

// Horovod's order, which scripts can rely on.
TEST_CASE("a number that was given back first is given out first, whether it has a board or not") {
  ProcessSets sets(1, 16);
  std::vector<Request> waiting;
  for (int64_t first = 0; first < 2; ++first)
    for (int64_t last = first + 1; last < 16; ++last) REQUIRE(sets.add({first, last}).isOk());
  for (const rueda::flow::SetId id : {20, 3}) {
    REQUIRE(sets.remove(id, &waiting).isOk());
    sets.giveBack(id);
  }
  CHECK(sets.add({1, 2, 3}).value() == 20);
  CHECK(sets.add({1, 2, 4}).value() == 3);
}

// Of 64 ranks one of the columns once had none.
TEST_CASE("all rows and columns of the most ranks of a job have boards") {
  ProcessSets sets(1, rueda::shm::kMaxRanks);
  constexpr int64_t kSide = 8;
  for (int64_t part = 0; part < kSide; ++part) {
    std::vector<int64_t> row;
    std::vector<int64_t> column;
    for (int64_t other = 0; other < kSide; ++other) {
      row.push_back(part * kSide + other);
      column.push_back(other * kSide + part);
    }
    CHECK(sets.add(row).value() < rueda::shm::kBoards);
    CHECK(sets.add(column).value() < rueda::shm::kBoards);
  }
}

TEST_CASE("what is no set of ranks of the job is refused, with the ranks in the text") {
  ProcessSets sets(1, 3);
  for (const std::vector<int64_t>& ranks :
       std::vector<std::vector<int64_t>>{{}, {-1}, {3}, {1, 0}, {1, 1}, {0, int64_t{1} << 40}})
    CHECK(sets.add(ranks).status().code() == Code::kInvalidArgument);
  CHECK(sets.add({1, 1}).status().message() ==
        "a process set of ranks [1, 1]: they must ascend and be ranks of the job, 0 to 2");
}

TEST_CASE("a second set of the same ranks is refused and named") {
  ProcessSets sets(1, 3);
  REQUIRE(sets.add({0, 2}).isOk());
  CHECK(sets.add({0, 2}).status().message() == "process set 1 has these ranks already: [0, 2]");
  CHECK(sets.add({0, 1, 2}).status().code() == Code::kAlreadyExists);  // That of all ranks.
}

TEST_CASE("sets are limited in number") {
  ProcessSets sets(1, 16);
  rueda::shm::Status last;
  for (int64_t bits = 1; bits < 1200 && last.isOk(); ++bits) {
    std::vector<int64_t> ranks;
    for (int64_t rank = 0; rank < 16; ++rank)
      if ((bits >> rank & 1) != 0) ranks.push_back(rank);
    last = sets.add(ranks).status();
  }
  CHECK(last.code() == Code::kResourceExhausted);
  CHECK(sets.find(rueda::negotiate::kMaxProcessSets - 1) != nullptr);
  CHECK(sets.find(rueda::negotiate::kMaxProcessSets) == nullptr);
}

TEST_CASE("the set of all ranks stays, and an unknown one cannot be removed") {
  ProcessSets sets(1, 2);
  std::vector<Request> waiting;
  CHECK(sets.remove(0, &waiting).code() == Code::kInvalidArgument);
  CHECK(sets.remove(7, &waiting).message() == "there is no process set 7 to remove");
}

TEST_CASE("what waits in a set wants its missing ranks only, and is handed out when it goes") {
  ProcessSets sets(1, 3);
  REQUIRE(sets.add({0, 2}).isOk());
  Request request = requestOf(2, 1, 1);
  REQUIRE(sets.add(&request).isOk());
  CHECK(sets.wants(0));
  CHECK_FALSE(sets.wants(1));
  CHECK_FALSE(sets.wants(2));
  CHECK(sets.active().size() == 1);
  std::vector<Request> waiting;
  REQUIRE(sets.remove(1, &waiting).isOk());
  REQUIRE(waiting.size() == 1);
  CHECK(waiting[0].rank == 2);
}
