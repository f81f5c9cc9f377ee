// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/times.h"

#include <catch2/catch.hpp>

#include "tests/kit/flow_maker.h"

using namespace rueda;  // NOLINT(google-build-using-namespace): a test file
using engine::addTimes;
using engine::Span;
using flow::TimePoint;

namespace {

TimePoint at(int64_t ns) { return TimePoint(std::chrono::nanoseconds(ns)); }

// Of three ranks, which the engine saw at 100, 200 and 300.
flow::Decision decision(int64_t decidedAt) {
  flow::Decision decision = kit::makeDecision(kit::makeRequests(3, "x"));
  for (int i = 0; i < 3; ++i) decision.requests[static_cast<size_t>(i)].arrived = at(100 + 100 * i);
  decision.decidedAt = at(decidedAt);
  return decision;
}

}  // namespace

TEST_CASE("each rank came when it says, if that can be, else when it was seen") {
  flow::Decision decision = ::decision(300);
  decision.requests[0].submittedNs = 60;
  decision.requests[1].submittedNs = GENERATE(0, -5, 201, INT64_MAX, INT64_MIN);
  flow::Outcome outcome;
  addTimes(decision, true, nullptr, &outcome);
  REQUIRE(outcome.rankTimes.size() == 3);
  CHECK(outcome.rankTimes[0].submitted == 60);
  CHECK(outcome.rankTimes[1].submitted == 200);
  CHECK(outcome.rankTimes[2].submitted == 300);
  CHECK(outcome.rankTimes[2].rank == 2);
}

TEST_CASE("what does not go over the data plane begins and ends when it is decided") {
  flow::Outcome outcome;
  addTimes(decision(310), true, nullptr, &outcome);
  CHECK(outcome.times.complete == 310);
  CHECK(outcome.times.decided == 310);
  CHECK(outcome.times.cycle == 310);
  CHECK(outcome.times.started == 310);
  CHECK(outcome.times.ended == 310);
}

TEST_CASE("what fails never runs") {
  flow::Outcome outcome;
  addTimes(decision(310), false, nullptr, &outcome);
  CHECK(outcome.times.decided == 310);
  CHECK(outcome.times.started == 0);
  CHECK(outcome.times.ended == 0);
}

TEST_CASE("the data plane has its own times") {
  flow::Outcome outcome;
  const Span span{at(400), at(410), at(500)};
  addTimes(decision(310), true, &span, &outcome);
  CHECK(outcome.times.decided == 310);
  CHECK(outcome.times.cycle == 400);
  CHECK(outcome.times.started == 410);
  CHECK(outcome.times.ended == 500);
}

TEST_CASE("one of a group is complete before it is decided, unless a join completed it") {
  flow::Decision decision = ::decision(900);
  decision.group = 7;
  flow::Outcome outcome;
  addTimes(decision, true, nullptr, &outcome);
  CHECK(outcome.times.complete == 300);
  CHECK(outcome.times.decided == 900);
  decision.joined.push_back({3, false});
  addTimes(decision, true, nullptr, &outcome);
  CHECK(outcome.times.complete == 900);
}
