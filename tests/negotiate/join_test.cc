// SPDX-License-Identifier: Apache-2.0

// Ranks that have joined, in the tensor table and before the compatibility check.

#include <catch2/catch.hpp>

#include "daemon/negotiate/tensor_table.h"
#include "tests/kit/flow_maker.h"

namespace {

using rueda::flow::Decision;
using rueda::flow::Request;
using rueda::negotiate::TensorTable;
using rueda::shm::Code;
using rueda::shm::OpKind;
using rueda::shm::Status;

Status add(TensorTable* table, int rank, const std::string& name,
           OpKind kind = OpKind::kAllreduce) {
  Request request = rueda::kit::makeRequest(rank, name, 4);
  request.spec.kind = kind;
  if (kind == OpKind::kAlltoall) request.spec.splits = {2, 1, 1};
  return table->add(&request);
}

Status join(TensorTable* table, int rank, bool leftOut = false) {
  Request request = rueda::kit::makeRequest(rank, ".join", 1);
  request.spec.kind = OpKind::kJoin;
  request.leftOut = leftOut;
  return table->add(&request);
}

}  // namespace

TEST_CASE("others go on without ranks that have joined, and the last one ends it for all") {
  TensorTable table(1, rueda::kit::ranksTo(3));
  REQUIRE(join(&table, 1).isOk());
  REQUIRE(add(&table, 0, "x").isOk());
  CHECK(table.takeReady().empty());
  CHECK(table.wants(2));
  CHECK_FALSE(table.wants(1));
  REQUIRE(add(&table, 2, "x").isOk());
  const auto ready = table.takeReady();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].error.isOk());
  CHECK(ready[0].requests.size() == 2);
  CHECK(ready[0].size() == 3);
  REQUIRE(ready[0].joined.size() == 1);
  CHECK(ready[0].joined[0].place == 1);

  REQUIRE(join(&table, 2).isOk());
  CHECK(table.takeReady().empty());
  REQUIRE(join(&table, 0).isOk());
  const auto last = table.takeReady();
  REQUIRE(last.size() == 1);
  CHECK(last[0].spec().kind == OpKind::kJoin);
  CHECK(last[0].requests.back().rank == 0);
  CHECK(table.empty());
  REQUIRE(add(&table, 1, "y").isOk());  // A new epoch.
  CHECK(table.takeReady().empty());
}

TEST_CASE("a join completes what waited for that rank, in the order in which it began to wait") {
  TensorTable table(1, rueda::kit::ranksTo(2));
  for (int i = 0; i < 20; ++i) {
    Request request = rueda::kit::makeRequest(0, "x" + std::to_string(i), 4);
    request.arrived += std::chrono::milliseconds(i);
    REQUIRE(table.add(&request).isOk());
  }
  REQUIRE(join(&table, 1).isOk());
  const auto ready = table.takeReady();
  REQUIRE(ready.size() == 20);
  for (size_t i = 0; i < 20; ++i) CHECK(ready[i].requests.front().name == "x" + std::to_string(i));
}

TEST_CASE("what a rank submitted before it joined still counts as its own") {
  TensorTable table(1, rueda::kit::ranksTo(2));
  REQUIRE(add(&table, 1, "x").isOk());
  REQUIRE(join(&table, 1).isOk());
  CHECK(table.takeReady().empty());
  REQUIRE(add(&table, 0, "x").isOk());
  const auto ready = table.takeReady();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].requests.size() == 2);
  CHECK(ready[0].joined.empty());
}

TEST_CASE("a rank that has joined submits nothing until all have, and joins once") {
  TensorTable table(1, rueda::kit::ranksTo(2));
  REQUIRE(join(&table, 1).isOk());
  CHECK(add(&table, 1, "x").code() == Code::kInvalidArgument);
  CHECK(join(&table, 1).code() == Code::kAlreadyExists);
  CHECK(table.entries().empty());
}

TEST_CASE("with zeros in its place only allreduces and barriers go on; left out, all kinds do") {
  const bool leftOut = GENERATE(false, true);
  const OpKind kind = GENERATE(OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast,
                               OpKind::kBarrier, OpKind::kAlltoall, OpKind::kReducescatter);
  CAPTURE(leftOut, rueda::shm::opKindName(kind));
  TensorTable table(1, rueda::kit::ranksTo(3));
  REQUIRE(join(&table, 2, leftOut).isOk());
  REQUIRE(add(&table, 0, "x", kind).isOk());
  REQUIRE(add(&table, 1, "x", kind).isOk());
  const auto ready = table.takeReady();
  REQUIRE(ready.size() == 1);
  const bool goesOn = leftOut || kind == OpKind::kAllreduce || kind == OpKind::kBarrier;
  CHECK(ready[0].error.isOk() == goesOn);
  if (!goesOn)
    CHECK(ready[0].error.message() ==
          std::string(rueda::shm::opKindName(kind)) +
              " 'x': rank 2 has joined, and only allreduce and barrier go on with zeros in its "
              "place; it can join so that it is left out instead");
}

TEST_CASE("no process set comes or goes without a rank that has joined") {
  // It did, and the joined rank never learned of it.
  const OpKind kind = GENERATE(OpKind::kAddSet, OpKind::kRemoveSet);
  TensorTable table(1, rueda::kit::ranksTo(2));
  REQUIRE(join(&table, 1, GENERATE(false, true)).isOk());
  REQUIRE(add(&table, 0, "x", kind).isOk());
  const auto ready = table.takeReady();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].error.code() == Code::kMismatch);
  CHECK_THAT(ready[0].error.message(),
             Catch::EndsWith("rank 1 has joined, and all ranks must take part"));
}

TEST_CASE("a broadcast from a rank that has joined fails, left out or not") {
  TensorTable table(1, rueda::kit::ranksTo(2));
  REQUIRE(join(&table, 0, true).isOk());
  REQUIRE(add(&table, 1, "x", OpKind::kBroadcast).isOk());
  const auto ready = table.takeReady();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].error.message() == "broadcast 'x': rank 0, its root, has joined");
}

TEST_CASE("with rank 0 joined the next rank's groups count") {
  TensorTable table(1, rueda::kit::ranksTo(3));
  REQUIRE(join(&table, 0).isOk());
  for (const char* name : {"a", "b"}) {
    for (const int rank : {1, 2}) {
      Request request = rueda::kit::makeRequest(rank, name);
      request.group = rank == 1 ? 5 : 0;
      request.groupSize = rank == 1 ? 2 : 1;
      REQUIRE(table.add(&request).isOk());
    }
    CHECK(table.takeReady().size() == (std::string(name) == "a" ? 0 : 2));
  }
}
