// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/snapshot_feed.h"

#include <catch2/catch.hpp>
#include <future>
#include <vector>

#include "tests/serve/serve_kit.h"

namespace {

using namespace std::chrono_literals;
using rueda::serve::SnapshotFeed;
using rueda::serve::SnapshotFeedOptions;
using rueda::serve::test::FakeEngine;
using rueda::shm::Code;

SnapshotFeedOptions options(std::chrono::milliseconds maxAge) {
  SnapshotFeedOptions made;
  made.maxAge = maxAge;
  return made;
}

// The code of one answer.
std::future<Code> ask(SnapshotFeed* feed) {
  auto promise = std::make_shared<std::promise<Code>>();
  feed->request([promise](const SnapshotFeed::Snapshot& snapshot) {
    promise->set_value(snapshot.status().code());
  });
  return promise->get_future();
}

}  // namespace

TEST_CASE("a fresh snapshot serves all who ask") {
  FakeEngine engine;
  SnapshotFeed feed(engine, options(1h));
  for (int i = 0; i < 100; ++i) REQUIRE(ask(&feed).get() == Code::kOk);
  CHECK(engine.snapshots() == 1);
}

TEST_CASE("an old snapshot is made anew") {
  FakeEngine engine;
  SnapshotFeed feed(engine, options(0ms));
  for (int i = 0; i < 5; ++i) REQUIRE(ask(&feed).get() == Code::kOk);
  CHECK(engine.snapshots() == 5);
}

TEST_CASE("nobody asks, nothing is asked of the engine") {
  FakeEngine engine;
  { SnapshotFeed feed(engine, options(0ms)); }
  CHECK(engine.snapshots() == 0);
}

TEST_CASE("those who come while the engine is stuck share one failure") {
  FakeEngine engine;
  engine.setStuck(true);
  SnapshotFeedOptions settings = options(1h);
  settings.timeout = 20ms;
  SnapshotFeed feed(engine, settings);
  std::vector<std::future<Code>> answers;
  for (int i = 0; i < 50; ++i) answers.push_back(ask(&feed));
  for (auto& answer : answers) REQUIRE(answer.get() == Code::kDeadlineExceeded);
  CHECK(engine.snapshots() == 1);
}

TEST_CASE("a full queue refuses and still answers those in it") {
  FakeEngine engine;
  engine.setStuck(true);
  SnapshotFeedOptions settings = options(1h);
  settings.timeout = 1h;
  settings.maxWaiting = 2;
  SnapshotFeed feed(engine, settings);
  std::future<Code> first = ask(&feed);
  while (engine.snapshots() == 0) std::this_thread::yield();  // The first has left the queue.
  std::future<Code> second = ask(&feed);
  std::future<Code> third = ask(&feed);
  CHECK(ask(&feed).get() == Code::kResourceExhausted);
  engine.setStuck(false);
  CHECK(first.get() == Code::kOk);
  CHECK(second.get() == Code::kOk);
  CHECK(third.get() == Code::kOk);
}

TEST_CASE("stop answers those who wait and refuses later ones") {
  FakeEngine engine;
  engine.setStuck(true);
  SnapshotFeedOptions settings = options(0ms);
  settings.timeout = 50ms;
  SnapshotFeed feed(engine, settings);
  std::future<Code> first = ask(&feed);
  while (engine.snapshots() == 0) std::this_thread::yield();
  std::future<Code> second = ask(&feed);
  feed.stop();
  CHECK(first.get() == Code::kDeadlineExceeded);
  CHECK(second.get() == Code::kUnavailable);
  CHECK(ask(&feed).get() == Code::kUnavailable);
  CHECK(engine.snapshots() == 1);
  feed.stop();
}
