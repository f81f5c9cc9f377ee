// SPDX-License-Identifier: Apache-2.0
#include "daemon/execute/cpu/worker_pool.h"

#include <catch2/catch.hpp>
#include <future>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

using rueda::execute::WorkerPool;

namespace {

constexpr std::chrono::seconds kLimit{20};

}  // namespace

TEST_CASE("every piece runs once and done is called once, after the last") {
  const size_t threads = GENERATE(1, 2, 4);
  const size_t pieces = GENERATE(1, 2, 7, 1000);
  WorkerPool pool(threads);
  std::vector<std::atomic<int>> runs(pieces);
  std::promise<int> ended;
  auto result = ended.get_future();
  WorkerPool::Work work;
  work.job = 1;
  work.pieces = pieces;
  work.runPiece = [&](size_t piece) { ++runs[piece]; };
  work.done = [&] {
    int total = 0;
    for (auto& run : runs) total += run == 1 ? 1 : 1000000;
    ended.set_value(total);  // A second call would throw and end the test.
  };
  pool.submit(std::move(work));
  REQUIRE(result.wait_for(kLimit) == std::future_status::ready);
  REQUIRE(result.get() == static_cast<int>(pieces));
}

TEST_CASE("each worker begins at a share of its own, and what it leaves others take") {
  WorkerPool pool(2);
  constexpr size_t kPieces = 100;
  std::atomic<int> meeting{0};
  std::mutex mutex;
  std::map<std::thread::id, std::vector<size_t>> order;
  std::promise<void> ended;
  WorkerPool::Work work;
  work.pieces = kPieces;
  work.runPiece = [&](size_t piece) {
    const bool isFirst = [&] {
      const std::lock_guard<std::mutex> lock(mutex);
      order[std::this_thread::get_id()].push_back(piece);
      return order[std::this_thread::get_id()].size() == 1;
    }();
    if (!isFirst) return;
    ++meeting;
    while (meeting < 2) std::this_thread::yield();
    if (piece == 0) return;  // The other one sits out, until all but its first are done.
    for (size_t done = 0; done < kPieces;) {
      const std::lock_guard<std::mutex> lock(mutex);
      done = order.begin()->second.size() + order.rbegin()->second.size();
    }
  };
  work.done = [&] { ended.set_value(); };
  pool.submit(std::move(work));
  REQUIRE(ended.get_future().wait_for(kLimit) == std::future_status::ready);
  REQUIRE(order.size() == 2);
  const auto& busy = order.begin()->second.size() > 1 ? order.begin() : std::prev(order.end());
  const auto& idle = busy == order.begin() ? std::prev(order.end()) : order.begin();
  CHECK(idle->second == std::vector<size_t>{kPieces / 2});
  std::vector<size_t> expected;  // Its share upwards, then the other's from its end.
  for (size_t piece = 0; piece < kPieces / 2; ++piece) expected.push_back(piece);
  for (size_t piece = kPieces - 1; piece > kPieces / 2; --piece) expected.push_back(piece);
  CHECK(busy->second == expected);
}

TEST_CASE("a small job does not wait for all pieces of a large one") {
  WorkerPool pool(1);
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  std::atomic<int> largeDone{0};
  std::promise<int> smallEnded;
  auto result = smallEnded.get_future();
  WorkerPool::Work large;
  large.job = 1;
  large.pieces = 100;
  large.runPiece = [&, opened](size_t) {
    opened.wait();
    ++largeDone;
  };
  large.done = [] {};
  WorkerPool::Work small;
  small.job = 2;
  small.pieces = 1;
  small.runPiece = [&](size_t) { smallEnded.set_value(largeDone); };
  small.done = [] {};
  pool.submit(std::move(large));
  pool.submit(std::move(small));
  gate.set_value();
  REQUIRE(result.wait_for(kLimit) == std::future_status::ready);
  REQUIRE(result.get() <= 2);
}

TEST_CASE("pieces of one job run in the order of submission on one thread") {
  WorkerPool pool(1);
  std::vector<int> order;
  std::promise<void> ended;
  auto result = ended.get_future();
  for (int i = 0; i < 5; ++i) {
    WorkerPool::Work work;
    work.job = 3;
    work.pieces = 2;
    work.runPiece = [&order, i](size_t) { order.push_back(i); };
    work.done = [&ended, i] {
      if (i == 4) ended.set_value();
    };
    pool.submit(std::move(work));
  }
  REQUIRE(result.wait_for(kLimit) == std::future_status::ready);
  REQUIRE(order == std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4});
}

TEST_CASE("a stopped pool drops what waits without calling done") {
  WorkerPool pool(1);
  std::promise<void> started;
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  std::atomic<int> calls{0};
  WorkerPool::Work first;
  first.job = 1;
  first.pieces = 1;
  first.runPiece = [&, opened](size_t) {
    started.set_value();
    opened.wait();
  };
  first.done = [&] { ++calls; };
  WorkerPool::Work second = first;
  second.runPiece = [&](size_t) { calls += 100; };
  second.done = [&] { calls += 100; };
  pool.submit(std::move(first));
  started.get_future().wait();
  pool.submit(std::move(second));
  std::thread opener([&gate] { gate.set_value(); });
  pool.stop();
  opener.join();
  REQUIRE(pool.threads() == 0);
  // The first ran to its end; whether the second was taken before the stop is a race it may win
  // whole.
  REQUIRE((calls == 1 || calls == 201));
}
