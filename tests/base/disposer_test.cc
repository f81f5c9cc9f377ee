// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/disposer.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

using rueda::base::Disposer;

namespace {

constexpr std::chrono::seconds kLimit{20};

// Says on which thread it was destroyed; takes until `mayEnd` is ready.
class Thing {
 public:
  Thing(std::promise<std::thread::id>* ended, std::shared_future<void> mayEnd)
      : ended_(ended), mayEnd_(std::move(mayEnd)) {}
  ~Thing() {
    mayEnd_.wait();
    ended_->set_value(std::this_thread::get_id());
  }

 private:
  std::promise<std::thread::id>* ended_;
  std::shared_future<void> mayEnd_;
};

}  // namespace

TEST_CASE("things are destroyed elsewhere, and nobody waits for it") {
  const bool isGuarded = GENERATE(false, true);
  const bool outlives = GENERATE(false, true);
  std::promise<void> gate;
  const auto opened = gate.get_future().share();
  std::promise<std::thread::id> ended[2];
  {
    std::optional<Disposer> disposer(std::in_place, GENERATE(false, true));
    std::shared_ptr<Thing> guarded = disposer->guard(std::make_unique<Thing>(&ended[0], opened));
    disposer->take(std::make_shared<Thing>(&ended[1], opened));
    if (outlives) disposer.reset();  // The last copy of `guarded` goes later.
    if (!isGuarded) disposer.reset();
  }
  // Both are still being destroyed, or wait to be.
  auto first = ended[0].get_future();
  auto second = ended[1].get_future();
  CHECK(second.wait_for(std::chrono::milliseconds(1)) == std::future_status::timeout);
  gate.set_value();
  REQUIRE(second.wait_for(kLimit) == std::future_status::ready);
  CHECK(second.get() != std::this_thread::get_id());
  // What comes after the end goes with the queue, which the thread still holds.
  REQUIRE(first.wait_for(kLimit) == std::future_status::ready);
}

TEST_CASE("many threads give many things, and each ends once") {
  constexpr int kThreads = 4;
  constexpr int kThings = 500;
  std::atomic<int> ended{0};
  {
    Disposer disposer;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&] {
        for (int i = 0; i < kThings; ++i)
          disposer.take(std::shared_ptr<void>(nullptr, [&](void*) { ++ended; }));
      });
    for (std::thread& thread : threads) thread.join();
  }
  const auto deadline = std::chrono::steady_clock::now() + kLimit;
  while (ended < kThreads * kThings && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  CHECK(ended == kThreads * kThings);
}
