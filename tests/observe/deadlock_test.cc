// SPDX-License-Identifier: Apache-2.0
#include "daemon/observe/deadlock.h"

#include <catch2/catch.hpp>
#include <optional>

using rueda::observe::rankList;
using rueda::observe::WaitedFor;

namespace {

// Operations that need every rank.
std::optional<std::string> findDeadlock(const std::vector<std::set<std::string>>& waiting) {
  std::vector<std::set<WaitedFor>> all(waiting.size());
  for (size_t rank = 0; rank < waiting.size(); ++rank)
    for (const std::string& operation : waiting[rank]) all[rank].insert({operation, all.size()});
  return rueda::observe::findDeadlock(all);
}

}  // namespace

TEST_CASE("a deadlock needs every rank to sleep in what others lack") {
  SECTION("no ranks") { REQUIRE_FALSE(findDeadlock({})); }
  SECTION("one rank alone waits for nobody") { REQUIRE_FALSE(findDeadlock({{"allreduce 'a'"}})); }
  SECTION("one of two is awake") { REQUIRE_FALSE(findDeadlock({{"allreduce 'a'"}, {}})); }
  SECTION("all sleep in the same operation, which runs") {
    REQUIRE_FALSE(findDeadlock({{"allreduce 'a'"}, {"allreduce 'a'"}}));
  }
  SECTION("several threads, one operation that all have") {
    REQUIRE_FALSE(findDeadlock({{"allreduce 'a'", "allreduce 'b'"}, {"allreduce 'b'"}}));
  }
}

TEST_CASE("a deadlock groups ranks by what they wait for") {
  SECTION("two ranks apart") {
    REQUIRE(findDeadlock({{"allreduce 'a'"}, {"barrier 'b'"}}) ==
            "rank 0 waits for allreduce 'a'; rank 1 waits for barrier 'b'");
  }
  SECTION("a group and one") {
    REQUIRE(findDeadlock({{"allreduce 'a'"}, {"broadcast 'b'"}, {"allreduce 'a'"}}) ==
            "ranks [0, 2] wait for allreduce 'a'; rank 1 waits for broadcast 'b'");
  }
  SECTION("a rank with two threads is listed with both") {
    REQUIRE(findDeadlock({{"allreduce 'a'", "allreduce 'b'"}, {"allreduce 'c'"}}) ==
            "rank 0 waits for allreduce 'a'; rank 0 waits for allreduce 'b'; "
            "rank 1 waits for allreduce 'c'");
  }
}

TEST_CASE("a deadlock of many operations stays one readable line") {
  std::vector<std::set<std::string>> waiting(40);
  for (size_t rank = 0; rank < waiting.size(); ++rank)
    waiting[rank] = {"allreduce '" + std::string(100, 'x') + std::to_string(rank) + "'"};
  const auto text = findDeadlock(waiting);
  REQUIRE(text);
  REQUIRE(text->size() < 4096);
  REQUIRE(text->find("; and 30 more") != std::string::npos);
}

TEST_CASE("rank lists are cut after sixteen") {
  REQUIRE(rankList({}) == "[]");
  REQUIRE(rankList({3}) == "[3]");
  REQUIRE(rankList({0, 1, 5}) == "[0, 1, 5]");
  std::vector<int> many(20);
  for (int i = 0; i < 20; ++i) many[static_cast<size_t>(i)] = i;
  REQUIRE(rankList(many) == "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15] and 4 more");
}

TEST_CASE("an operation of a process set that has its ranks runs, whoever else sleeps") {
  const WaitedFor all = {"allreduce 'a'", 3};
  const WaitedFor two = {"allreduce 'b' of process set 1", 2};
  CHECK_FALSE(rueda::observe::findDeadlock({{two}, {two}, {all}}));
  CHECK(rueda::observe::findDeadlock({{two}, {all}, {all}}) ==
        "ranks [1, 2] wait for allreduce 'a'; rank 0 waits for allreduce 'b' of process set 1");
}
