// SPDX-License-Identifier: Apache-2.0
#include "daemon/negotiate/tensor_table.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <set>

#include "tests/kit/flow_maker.h"

namespace {

using rueda::flow::Decision;
using rueda::flow::Request;
using rueda::flow::TimePoint;
using rueda::kit::makeRequest;
using rueda::negotiate::TensorTable;
using rueda::shm::Code;
using rueda::shm::Status;

constexpr rueda::flow::JobSerial kJob = 7;

Status add(TensorTable* table, Request request) { return table->add(&request); }

// Of a group as the daemon's border makes it.
Request grouped(int rank, const std::string& name, uint32_t group, uint32_t size) {
  Request request = makeRequest(rank, name);
  request.group = uint64_t{1} << 32 | group;
  request.groupSize = size;
  return request;
}

std::vector<std::string> namesOf(const std::vector<Decision>& decisions) {
  std::vector<std::string> names;
  for (const Decision& decision : decisions) names.push_back(decision.requests.front().name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("an empty table has nothing to give") {
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  CHECK(table.empty());
  CHECK(table.takeReady().empty());
  CHECK(table.takeAll().empty());
}

TEST_CASE("a name is ready when all ranks have submitted it, not before") {
  const int size = GENERATE(1, 2, 64);
  TensorTable table(kJob, rueda::kit::ranksTo(size));
  for (int rank = 0; rank < size; ++rank) {
    CHECK(table.takeReady().empty());
    REQUIRE(add(&table, makeRequest(rank, "x")).isOk());
  }
  const auto ready = table.takeReady();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].job == kJob);
  CHECK(ready[0].error.isOk());
  REQUIRE(ready[0].requests.size() == static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank)
    CHECK(ready[0].requests[static_cast<size_t>(rank)].rank == rank);
  CHECK(table.empty());
}

TEST_CASE("requests are in rank order, whoever came first") {
  TensorTable table(kJob, rueda::kit::ranksTo(3));
  for (const int rank : {2, 0, 1}) REQUIRE(add(&table, makeRequest(rank, "x")).isOk());
  const auto ready = table.takeReady();
  REQUIRE(ready.size() == 1);
  for (int rank = 0; rank < 3; ++rank)
    CHECK(ready[0].requests[static_cast<size_t>(rank)].rank == rank);
}

TEST_CASE("names are decided in the order in which they became complete") {
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  for (const char* name : {"a", "b", "c"}) REQUIRE(add(&table, makeRequest(0, name)).isOk());
  for (const char* name : {"c", "a", "b"}) REQUIRE(add(&table, makeRequest(1, name)).isOk());
  CHECK(namesOf(table.takeReady()) == Names{"c", "a", "b"});
}

TEST_CASE("a second request of one rank under a waiting name is refused and untouched") {
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  REQUIRE(add(&table, makeRequest(0, "x", 4)).isOk());
  Request second = makeRequest(0, "x", 8);
  const Status status = table.add(&second);
  CHECK(status.code() == Code::kAlreadyExists);
  CHECK(status.message() ==
        "allreduce 'x' of this rank is still pending; a name may be used again "
        "when its operation has ended");
  CHECK(second.name == "x");
  CHECK(second.spec.count == 8);
  // The first one is not disturbed, and the name is free once it is decided.
  REQUIRE(add(&table, makeRequest(1, "x", 4)).isOk());
  CHECK(table.takeReady().at(0).error.isOk());
  CHECK(add(&table, std::move(second)).isOk());
}

TEST_CASE("ranks that disagree become a decision with an error") {
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  REQUIRE(add(&table, makeRequest(0, "x", 4)).isOk());
  REQUIRE(add(&table, makeRequest(1, "x", 5)).isOk());
  const auto ready = table.takeReady();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].error.code() == Code::kMismatch);
  CHECK(ready[0].requests.size() == 2);
}

TEST_CASE("a group comes whole, when its last name is complete") {
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  for (const char* name : {"a", "b", "c"})
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(table.takeReady().empty());
      REQUIRE(add(&table, grouped(rank, name, 5, 3)).isOk());
    }
  const auto ready = table.takeReady();
  CHECK(namesOf(ready) == Names{"a", "b", "c"});
  CHECK(ready[0].group != 0);
  CHECK(std::all_of(ready.begin(), ready.end(),
                    [&](const Decision& d) { return d.group == ready[0].group; }));
}

TEST_CASE("two groups in the making do not mix, and others pass them") {
  TensorTable table(kJob, rueda::kit::ranksTo(1));
  REQUIRE(add(&table, grouped(0, "a1", 1, 2)).isOk());
  REQUIRE(add(&table, grouped(0, "b1", 2, 2)).isOk());
  REQUIRE(add(&table, makeRequest(0, "alone")).isOk());
  CHECK(namesOf(table.takeReady()) == Names{"alone"});
  CHECK_FALSE(table.empty());
  REQUIRE(add(&table, grouped(0, "b2", 2, 2)).isOk());
  CHECK(namesOf(table.takeReady()) == Names{"b1", "b2"});
  REQUIRE(add(&table, grouped(0, "a2", 1, 2)).isOk());
  CHECK(namesOf(table.takeReady()) == Names{"a1", "a2"});
}

TEST_CASE("ranks need not number their groups alike") {
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  for (const char* name : {"a", "b"}) {
    REQUIRE(add(&table, grouped(0, name, 1, 2)).isOk());
    REQUIRE(add(&table, grouped(1, name, 9, 2)).isOk());
  }
  CHECK(namesOf(table.takeReady()) == Names{"a", "b"});
}

TEST_CASE("every request ends however ranks group the same names, in any order of arrival") {
  // Once the first to arrive decided for each name, so that a group could wait for ever for a
  // member that had been run alone, or been counted to another rank's group.
  const uint32_t seed = Catch::rngSeed() + static_cast<uint32_t>(GENERATE(range(0, 50)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  TensorTable table(kJob, rueda::kit::ranksTo(3));
  std::vector<Request> requests;
  for (int rank = 0; rank < 3; ++rank) {
    const bool isGrouped = random() % 3 != 0;
    for (const char* name : {"a", "b", "c", "d"})
      requests.push_back(isGrouped ? grouped(rank, name, random() % 2, 4)
                                   : makeRequest(rank, name));
  }
  // One group has one number on its rank.
  for (Request& request : requests)
    if (request.group != 0) request.group = uint64_t{1} << 32 | static_cast<uint32_t>(request.rank);
  std::shuffle(requests.begin(), requests.end(), random);
  for (Request& request : requests) REQUIRE(table.add(&request).isOk());
  CHECK(table.takeReady().size() == 4);
  CHECK(table.empty());
}

TEST_CASE("a group does not wait for a member that was refused") {
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  REQUIRE(add(&table, makeRequest(0, "b")).isOk());  // Waits for rank 1.
  REQUIRE(add(&table, grouped(0, "a", 1, 2)).isOk());
  const bool isFirst = GENERATE(true, false);  // Refused before the other member is complete.
  if (isFirst) REQUIRE(add(&table, grouped(0, "b", 1, 2)).code() == Code::kAlreadyExists);
  REQUIRE(add(&table, makeRequest(1, "a")).isOk());
  if (!isFirst) REQUIRE(add(&table, grouped(0, "b", 1, 2)).code() == Code::kAlreadyExists);
  CHECK(namesOf(table.takeReady()) == Names{"a"});
}

TEST_CASE("what is complete of a group is let go when the rest does not come") {
  // Once a rank that took the group's names one by one waited for the first, and rank 0 for the
  // last.
  const TimePoint start = TimePoint{} + std::chrono::seconds(10);
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  for (const char* name : {"a", "b"}) {
    Request request = grouped(0, name, 1, 2);
    request.arrived = start;
    REQUIRE(table.add(&request).isOk());
  }
  CHECK_FALSE(table.releaseGroups(TimePoint::max()));  // Nothing of it is complete.
  Request first = makeRequest(1, "a");
  first.arrived = start + std::chrono::seconds(1);
  REQUIRE(table.add(&first).isOk());
  CHECK_FALSE(table.releaseGroups(start + std::chrono::seconds(1)));
  CHECK(table.takeReady().empty());
  CHECK(table.releaseGroups(start + std::chrono::seconds(2)));
  CHECK(namesOf(table.takeReady()) == Names{"a"});
  // The rest comes later, and is let go in the same way.
  Request last = makeRequest(1, "b");
  last.arrived = start + std::chrono::seconds(3);
  REQUIRE(table.add(&last).isOk());
  CHECK(table.releaseGroups(start + std::chrono::seconds(4)));
  CHECK(namesOf(table.takeReady()) == Names{"b"});
  CHECK(table.empty());
}

TEST_CASE("an error inside a group does not hold up the rest of it") {
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  REQUIRE(add(&table, grouped(0, "a", 1, 2)).isOk());
  Request other = grouped(1, "a", 1, 2);
  other.spec.dtype = rueda::shm::DType::kInt8;
  REQUIRE(table.add(&other).isOk());
  CHECK(table.takeReady().empty());
  for (int rank = 0; rank < 2; ++rank) REQUIRE(add(&table, grouped(rank, "b", 1, 2)).isOk());
  const auto ready = table.takeReady();
  REQUIRE(ready.size() == 2);
  CHECK_FALSE(ready[0].error.isOk());
  CHECK(ready[1].error.isOk());
}

TEST_CASE("takeAll finds every request: waiting, in half a group, decided and not taken") {
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  REQUIRE(add(&table, makeRequest(1, "waits")).isOk());
  for (int rank = 0; rank < 2; ++rank) REQUIRE(add(&table, grouped(rank, "half", 1, 2)).isOk());
  for (int rank = 0; rank < 2; ++rank) REQUIRE(add(&table, makeRequest(rank, "decided")).isOk());
  std::multiset<std::string> names;
  for (const Request& request : table.takeAll()) names.insert(request.name);
  CHECK(names == std::multiset<std::string>{"waits", "half", "half", "decided", "decided"});
  CHECK(table.empty());
  CHECK(table.takeReady().empty());
  // Nothing is remembered.
  CHECK(add(&table, makeRequest(1, "waits")).isOk());
}

TEST_CASE("an entry shows its first present rank, and since when it waits") {
  TensorTable table(kJob, rueda::kit::ranksTo(3));
  Request request = makeRequest(2, "x");
  request.arrived = TimePoint{} + std::chrono::seconds(3);
  REQUIRE(table.add(&request).isOk());
  const auto& entry = table.entries().at("x");
  CHECK(entry.first().rank == 2);
  CHECK(entry.present == 1);
  CHECK(entry.since == TimePoint{} + std::chrono::seconds(3));
}

TEST_CASE("a rank is wanted while some name lacks it") {
  TensorTable table(kJob, rueda::kit::ranksTo(2));
  CHECK_FALSE(table.wants(0));
  REQUIRE(add(&table, makeRequest(0, "x")).isOk());
  CHECK_FALSE(table.wants(0));
  CHECK(table.wants(1));
  REQUIRE(add(&table, makeRequest(1, "y")).isOk());
  CHECK(table.wants(0));
  CHECK(add(&table, makeRequest(0, "x")).code() == Code::kAlreadyExists);  // Counts for nothing.
  REQUIRE(add(&table, makeRequest(1, "x")).isOk());
  CHECK(table.wants(0));
  CHECK_FALSE(table.wants(1));
  SECTION("until the last one has come") {
    REQUIRE(add(&table, makeRequest(0, "y")).isOk());
    CHECK_FALSE(table.wants(0));
  }
  SECTION("or all were taken away") {
    table.takeAll();
    CHECK_FALSE(table.wants(0));
  }
}
