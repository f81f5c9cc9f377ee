// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/memory.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <thread>

#include "tests/kit/daemon_fixture.h"

namespace {

using rueda::client::Client;
using rueda::kit::DaemonFixture;
using rueda::kit::DaemonSetup;
using rueda::shm::Code;

constexpr uint64_t kMiB = 1 << 20;

// A job of one rank.
struct Alone {
  explicit Alone(DaemonSetup setup = {})
      : daemon(std::move(setup)), client(Client::open(daemon.options(0, 1))) {}
  rueda::client::Memory& memory() { return client.value()->memory(); }
  DaemonFixture daemon;
  rueda::shm::Result<std::unique_ptr<Client>> client;
};

}  // namespace

TEST_CASE("blocks are aligned, zeroed and writable, also empty ones") {
  Alone alone;
  REQUIRE(alone.client.isOk());
  std::set<char*> blocks;
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{64}, uint64_t{65}, 3 * kMiB}) {
    const auto block = alone.memory().allocate(bytes);
    REQUIRE(block.isOk());
    CHECK(reinterpret_cast<uintptr_t>(block.value()) % 64 == 0);
    for (uint64_t i = 0; i < bytes; ++i) REQUIRE(block.value()[i] == 0);
    if (bytes > 0) std::memset(block.value(), 1, bytes);
    CHECK(blocks.insert(block.value()).second);
  }
}

TEST_CASE("segments are few and grow: 4 MiB, 8 MiB, up to 64 MiB") {
  Alone alone;
  REQUIRE(alone.client.isOk());
  for (int i = 0; i < 64; ++i) REQUIRE(alone.memory().allocate(kMiB).isOk());
  // 4 + 8 + 16 + 32 + 64 hold them.
  CHECK(alone.daemon.state().jobs.at(0).ranks.at(0).arenaBytes == 124 * kMiB);
}

TEST_CASE("a block larger than any segment gets one of its own size") {
  Alone alone;
  REQUIRE(alone.client.isOk());
  REQUIRE(alone.memory().allocate(70 * kMiB + 1).isOk());
  CHECK(alone.daemon.state().jobs.at(0).ranks.at(0).arenaBytes == 70 * kMiB + 4096);
}

TEST_CASE("freed blocks are used again") {
  Alone alone;
  REQUIRE(alone.client.isOk());
  for (int i = 0; i < 100; ++i) {
    const auto block = alone.memory().allocate(3 * kMiB);
    REQUIRE(block.isOk());
    CHECK(alone.memory().free(block.value()).isOk());
  }
  CHECK(alone.daemon.state().jobs.at(0).ranks.at(0).arenaBytes == 4 * kMiB);
}

TEST_CASE("only the start of a living block can be freed") {
  Alone alone;
  REQUIRE(alone.client.isOk());
  char* const block = alone.memory().allocate(100).value();
  int local = 0;
  for (void* wrong : {static_cast<void*>(nullptr), static_cast<void*>(&local),
                      static_cast<void*>(block + 1), static_cast<void*>(block + 64)})
    CHECK(alone.memory().free(wrong).code() == Code::kInvalidArgument);
  CHECK(alone.memory().free(block).isOk());
  CHECK(alone.memory().free(block).code() == Code::kInvalidArgument);
}

TEST_CASE("owns tells arena memory from all other") {
  Alone alone;
  REQUIRE(alone.client.isOk());
  char* const block = alone.memory().allocate(100).value();
  int local = 0;
  CHECK(alone.memory().owns(block, 100));
  CHECK(alone.memory().owns(block + 50, 50));
  CHECK_FALSE(alone.memory().owns(&local, sizeof local));
  CHECK_FALSE(alone.memory().owns(nullptr, 0));
  CHECK_FALSE(alone.memory().owns(block, ~uint64_t{0}));
}

TEST_CASE("memory beyond the quota is refused with its numbers, and the session goes on") {
  DaemonSetup setup;
  setup.engine.quota.bytesPerUid = 6 * kMiB;
  Alone alone(setup);
  REQUIRE(alone.client.isOk());
  REQUIRE(alone.memory().allocate(kMiB).isOk());
  const auto refused = alone.memory().allocate(5 * kMiB);
  CHECK(refused.status().code() == Code::kResourceExhausted);
  CHECK_THAT(refused.status().message(),
             Catch::Contains("holds 4194304, asks for 8388608, limit "));
  CHECK(alone.memory().allocate(kMiB).isOk());
}

TEST_CASE("sizes that no machine has are refused without asking the daemon for them") {
  Alone alone;
  REQUIRE(alone.client.isOk());
  for (const uint64_t bytes : {uint64_t{1} << 49, ~uint64_t{0}, ~uint64_t{0} - 4095})
    CHECK(alone.memory().allocate(bytes).status().code() == Code::kResourceExhausted);
  CHECK(alone.client.value()->health().isOk());
}

TEST_CASE("threads that allocate and free at once get blocks of their own") {
  Alone alone;
  REQUIRE(alone.client.isOk());
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto block = alone.memory().allocate(1000 + 100 * static_cast<uint64_t>(t));
        if (!block.isOk()) {
          ++wrong;
          return;
        }
        std::memset(block.value(), t, 1000);
        for (int k = 0; k < 1000; ++k) wrong += block.value()[k] == t ? 0 : 1;
        if (!alone.memory().free(block.value()).isOk()) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong.load() == 0);
}
