// SPDX-License-Identifier: Apache-2.0

// main() of every Catch2 test: prints the seed of random tests, and ends a test that hangs, with
// its name, before the test runner would kill the program without one.

#define CATCH_CONFIG_RUNNER
#include <pthread.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>

namespace {

// Ends a case before the build tool ends the program without naming it. Bazel says in TEST_TIMEOUT
// how many seconds that is: 60 for a small test, more under a sanitizer.
std::chrono::seconds caseLimit() {
  const char* text = std::getenv("TEST_TIMEOUT");
  const int granted = text != nullptr ? std::atoi(text) : 0;
  return std::chrono::seconds(granted > 20 ? granted - 10 : 50);
}

// Watches the case that runs now. Case names are set by the test thread; the watchdog thread only
// waits. Lives as long as the process.
class Watchdog {
 public:
  Watchdog() : thread_([this] { watch(); }) {}
  ~Watchdog() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void begin(const std::string& name) { set(name); }
  void end() { set(std::string()); }

 private:
  void set(const std::string& name) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      name_ = name;
      ++generation_;
    }
    changed_.notify_one();
  }

  void watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stopped_) {
      const uint64_t seen = generation_;
      auto moved = [&] { return stopped_ || generation_ != seen; };
      if (name_.empty()) {
        changed_.wait(lock, moved);
      } else if (!changed_.wait_for(lock, limit_, moved)) {
        std::fprintf(stderr, "test case \"%s\" hangs: over %lld s\n", name_.c_str(),
                     static_cast<long long>(limit_.count()));
        std::abort();
      }
    }
  }

  const std::chrono::seconds limit_ = caseLimit();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string name_;  // Empty between cases. Guarded by mutex_, as the next two.
  uint64_t generation_ = 0;
  bool stopped_ = false;
  std::thread thread_;
};

Watchdog* watchdog = nullptr;  // Set by main before the first case.

class WatchListener : public Catch::TestEventListenerBase {
 public:
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseStarting(const Catch::TestCaseInfo& info) override { watchdog->begin(info.name); }
  void testCaseEnded(const Catch::TestCaseStats&) override { watchdog->end(); }
};
CATCH_REGISTER_LISTENER(WatchListener)

}  // namespace

int main(int argc, char** argv) {
  Catch::Session session;
  const int parsed = session.applyCommandLine(argc, argv);
  if (parsed != 0) return parsed;
  std::printf("seed %u (repeat with --rng-seed)\n", session.config().rngSeed());
  Watchdog dog;
  watchdog = &dog;
  return session.run();
}
