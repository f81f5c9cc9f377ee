// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/timeline.h"

#include <catch2/catch.hpp>
#include <csignal>
#include <thread>

#include "tests/kit/capture_stderr.h"
#include "tests/kit/child.h"
#include "tests/kit/temp_dir.h"
#include "tests/kit/trace.h"

using rueda::client::TimedOperation;
using rueda::client::Timeline;
using rueda::kit::CaptureStderr;
using rueda::kit::TempDir;
using rueda::kit::traceOf;

namespace {

TimedOperation operation(const std::string& name) {
  TimedOperation op;
  op.name = name;
  return op;
}

bool eventuallyHas(const std::string& path, const std::string& text) {
  for (int i = 0; i < 3000; ++i) {
    if (rueda::kit::textOf(path).find(text) != std::string::npos) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

TEST_CASE("what is recorded is in the file soon, and all of it after stop") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  Timeline timeline;
  timeline.record(operation("early"));
  REQUIRE(timeline.start(path, false).isOk());
  CHECK(timeline.isRunning());
  timeline.record(operation("first"));
  CHECK(eventuallyHas(path, "first"));
  CHECK(traceOf(path).is_array());
  for (int i = 0; i < 5000; ++i) timeline.record(operation(std::to_string(i)));
  timeline.stop();
  CHECK_FALSE(timeline.isRunning());
  timeline.record(operation("late"));
  CHECK(rueda::kit::wordsByName(traceOf(path)).size() == 5001);
  CHECK(rueda::kit::nestingProblem(traceOf(path)) == "");
}

TEST_CASE("starting a running one and stopping a stopped one are one line each") {
  const TempDir folder;
  Timeline timeline;
  CaptureStderr capture;
  timeline.stop();
  const bool started = timeline.start(folder.file("a"), false).isOk();
  const bool again = timeline.start(folder.file("b"), false).isOk();
  timeline.stop();
  timeline.stop();
  CHECK(capture.text() ==
        "rueda: there is no timeline to stop\n"
        "rueda: a timeline runs already; '" +
            folder.file("b") +
            "' is not started\n"
            "rueda: there is no timeline to stop\n");
  CHECK((started && again));
  CHECK(traceOf(folder.file("a")).size() == 1);
  CHECK(rueda::kit::textOf(folder.file("b")).empty());
}

TEST_CASE("each start makes a new file, with time 0 anew") {
  const TempDir folder;
  Timeline timeline;
  for (const char* name : {"a", "b", "a"}) {
    REQUIRE(timeline.start(folder.file(name), false).isOk());
    timeline.record(operation("x"));
    timeline.stop();
    CHECK(traceOf(folder.file(name)).size() == 6);
  }
  CHECK(timeline.start("/nowhere/t.json", false).code() == rueda::shm::Code::kInvalidArgument);
  CHECK_FALSE(timeline.isRunning());
}

TEST_CASE("a forked child leaves the file to its parent") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  auto timeline = std::make_unique<Timeline>();
  REQUIRE(timeline->start(path, false).isOk());
  rueda::kit::Child child([&] {
    timeline->leaveToParent();
    timeline->record(operation("of the child"));
    timeline.reset();
    return 3;
  });
  CHECK(WEXITSTATUS(child.wait()) == 3);
  timeline->record(operation("of the parent"));
  timeline.reset();
  CHECK(rueda::kit::wordsByName(traceOf(path)).size() == 1);
}

TEST_CASE("threads may record while others start and stop") {
  const TempDir folder;
  const std::string path = folder.file("t.json");
  Timeline timeline;
  std::atomic<bool> isOver{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      while (!isOver) timeline.record(operation(std::to_string(t)));
    });
  size_t wrong = 0;
  for (int i = 0; i < 20; ++i) {
    wrong += timeline.start(path, true).isOk() ? 0 : 1;
    timeline.stop();
    wrong += traceOf(path).is_array() ? 0 : 1;
  }
  isOver = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}
