// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/direct.h"

#include <catch2/catch.hpp>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/hostile_client.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::client::signatureOf;
using rueda::kit::DaemonFixture;
using rueda::kit::HostileClient;
using rueda::shm::Status;
using rueda::shm::SubmissionEntry;
using rueda::shm::tagged;

// A job of two: rank 0 is a real client, rank 1 is moved by hand, as slowly as a test likes.
class Pair {
 public:
  Pair() : slow_(daemon_.socket()) {
    if (!slow_.join(1, 2)) return;
    auto opened = Client::open(daemon_.options(0, 2));
    if (opened.isOk() && slow_.awaitJob()) client_ = std::move(opened).value();
  }
  bool isReady() const { return client_ != nullptr; }
  Client& client() { return *client_; }
  HostileClient& slow() { return slow_; }
  rueda::shm::Board* board() { return slow_.board(); }
  DaemonFixture& daemon() { return daemon_; }

  // Rank 1 posts an operation with its one float of payload.
  void post(uint32_t index, const Operation& op, float value) {
    auto& line = board()->posts[index & 1][1];
    std::memcpy(line.vectors.bytes, &value, sizeof value);
    line.word.store(tagged(index, signatureOf(op)), std::memory_order_seq_cst);
    rueda::shm::ring(board()->arrival);
  }
  uint64_t wordOfRank0(uint32_t index) { return board()->posts[index & 1][0].word.load(); }

  // Rank 1 submits a barrier through the ring; with an index, it says it has tried that first.
  void submitBarrier(const std::string& name, std::optional<uint32_t> tried = std::nullopt) {
    SubmissionEntry entry = rueda::kit::allreduceEntry(++request_, 0);
    entry.kind = static_cast<uint8_t>(rueda::shm::OpKind::kBarrier);
    entry.flags = rueda::shm::kFlagBlocking;
    if (tried) entry.flags |= rueda::shm::kFlagFallback;
    entry.directIndex = tried.value_or(0);
    slow_.submit(entry, {}, name);
  }
  // True once rank 0 waits for `name` in the ring.
  bool awaitInRing(const std::string& name) {
    return daemon_.eventually([&](const rueda::flow::StateView& view) {
      for (const auto& job : view.jobs)
        for (const auto& pending : job.pending)
          if (pending.name == name) return true;
      return false;
    });
  }

 private:
  DaemonFixture daemon_;
  HostileClient slow_;
  std::unique_ptr<Client> client_;
  uint64_t request_ = 0;
};

const std::vector<int64_t> kScalar;

Operation sum(const char* name, float* value) {
  return rueda::kit::allreduce(name, kScalar, value, value);
}

}  // namespace

TEST_CASE("small operations meet on the board without the daemon") {
  Pair pair;
  REQUIRE(pair.isReady());
  for (uint32_t index = 1; index <= 10; ++index) {
    float value = 2;
    const Operation op = sum("x", &value);
    pair.post(index, op, 40);
    REQUIRE(pair.client().run(op).isOk());
    CHECK(value == 42);
    CHECK(pair.wordOfRank0(index) == tagged(index, signatureOf(op)));
  }
  const auto job = pair.daemon().state().jobs.at(0);
  CHECK(job.ranks.at(0).submitted == 0);
  CHECK(job.ranks.at(0).direct == 10);
  CHECK(job.opsDirect == 10);
  CHECK(job.opsCompleted == 0);
}

TEST_CASE("a rank that waits long tells the daemon, which withdraws what cannot meet") {
  Pair pair;
  REQUIRE(pair.isReady());
  pair.submitBarrier("b");  // Rank 1 is in the ring; rank 0 tries the board first.
  REQUIRE(pair.client().run(rueda::kit::barrier("b")).isOk());
  CHECK(pair.board()->withdrawals[1].verdict.load() == tagged(1, rueda::shm::kVerdictWithdrawn));
  CHECK(pair.daemon().state().jobs.at(0).opsCompleted == 1);
}

TEST_CASE("another signature at the same index sends both to the ring") {
  Pair pair;
  REQUIRE(pair.isReady());
  float other = 0;
  pair.post(1, sum("other", &other), 1);
  pair.submitBarrier("b", 1);
  REQUIRE(pair.client().run(rueda::kit::barrier("b")).isOk());
  const auto done = pair.slow().completion();
  REQUIRE(done.has_value());
  // Both have tried index 1: both go on at 2.
  CHECK(done->hasDirectIndex == 1);
  CHECK(done->directIndex == 2);
  float value = 2;
  pair.post(2, sum("x", &value), 40);
  REQUIRE(pair.client().run(sum("x", &value)).isOk());
  CHECK(value == 42);
}

TEST_CASE("after a detour all go on at the highest index that one of them has tried") {
  Pair pair;
  REQUIRE(pair.isReady());
  pair.submitBarrier("b", 77);
  REQUIRE(pair.client().run(rueda::kit::barrier("b")).isOk());
  CHECK(pair.slow().completion()->directIndex == 78);
  float value = 2;
  pair.post(78, sum("x", &value), 40);
  REQUIRE(pair.client().run(sum("x", &value)).isOk());
  CHECK(value == 42);
}

TEST_CASE("a line is not written again before all ranks have left its operation") {
  // Once, a rank whose next operation was withdrawn went on to the one after, and wrote over the
  // line that a slow peer was still reading: that peer got a wrong sum, or waited for ever.
  Pair pair;
  REQUIRE(pair.isReady());
  float value = 2;
  const Operation first = sum("x", &value);
  pair.post(1, first, 40);
  REQUIRE(pair.client().run(first).isOk());
  // Rank 1 has not left operation 1: its thread is not scheduled. Another thread of it does this:
  pair.submitBarrier("y");
  REQUIRE(pair.client().run(rueda::kit::barrier("y")).isOk());
  Status third;
  std::thread thread([&] { third = pair.client().run(rueda::kit::barrier("z")); });
  const bool isInRing = pair.awaitInRing("z");
  CHECK(isInRing);
  CHECK(pair.wordOfRank0(1) == tagged(1, signatureOf(first)));
  // Now rank 1 goes on; it says that it has left everything before index 3.
  pair.submitBarrier("z", 3);
  thread.join();
  CHECK(third.isOk());
  float last = 2;
  pair.post(4, sum("last", &last), 40);
  REQUIRE(pair.client().run(sum("last", &last)).isOk());
  CHECK(last == 42);
}

TEST_CASE("a waiter on the board is freed when the job ends") {
  Pair pair;
  REQUIRE(pair.isReady());
  Status status;
  std::thread thread([&] { status = pair.client().run(rueda::kit::barrier("b")); });
  REQUIRE(pair.daemon().eventually([](const rueda::flow::StateView& view) {
    return view.jobs.size() == 1 && view.jobs[0].pending.size() == 1;
  }));
  pair.slow().close();
  thread.join();
  CHECK(status.code() == rueda::shm::Code::kRankLost);
  CHECK(pair.board()->abort.load() == 1);
}

TEST_CASE("memory that a peer posted outside its segments ends the session, not the process") {
  Pair pair;
  REQUIRE(pair.isReady());
  const std::vector<int64_t> shape = {1000};
  std::vector<float> data(1000);
  const auto op = rueda::kit::allreduce("x", shape, data.data(), data.data());
  const uint32_t segment = pair.slow().allocate(4096);
  REQUIRE(segment != 0);
  auto ready =
      rueda::shm::makeMessage<rueda::shm::SegmentMessage>(rueda::shm::MessageType::kSegmentReady);
  ready.segment = segment;
  REQUIRE(pair.slow().send(ready).isOk());
  auto& line = pair.board()->posts[1][1];
  line.payload = {};
  line.payload.inSegment = line.payload.outSegment = segment;
  line.payload.inOffset = GENERATE(uint64_t{4096}, uint64_t{100}, ~uint64_t{0});
  line.word.store(tagged(1, signatureOf(op)), std::memory_order_seq_cst);
  const Status status = pair.client().run(op);
  CHECK(status.code() == rueda::shm::Code::kInternal);
  CHECK(status.message() == "rank 1 posted memory outside its segments");
}

TEST_CASE("a root succeeds when a peer leaves with its copy while another still makes its own") {
  // Once the peer's leaving made the last broadcast of a job fail on its root.
  DaemonFixture daemon;
  HostileClient slow(daemon.socket());
  REQUIRE(slow.join(1, 3));
  std::unique_ptr<Client> quick;
  std::thread opener([&] { quick = std::move(Client::open(daemon.options(2, 3))).value(); });
  const auto root = Client::open(daemon.options(0, 3));
  opener.join();
  REQUIRE(root.isOk());
  const std::vector<int64_t> shape = {1000};
  auto* const source = reinterpret_cast<float*>(root.value()->memory().allocate(4000).value());
  source[999] = 7;
  const auto op = rueda::kit::broadcast("x", shape, source, 0);
  auto& line = slow.board()->posts[1][1];
  line.payload = {};
  line.word.store(tagged(1, signatureOf(op)), std::memory_order_seq_cst);
  Status status;
  std::thread sending([&] { status = root.value()->run(op); });
  std::vector<float> copy(1000);
  const Status copied = quick->run(rueda::kit::broadcast("x", shape, copy.data(), 0));
  quick.reset();
  while (slow.board()->abort.load() == 0) std::this_thread::yield();
  // Rank 1 is through with its copy.
  slow.board()->finished[1][0].fetch_add(1, std::memory_order_seq_cst);
  sending.join();
  CHECK(copied.isOk());
  CHECK(copy[999] == 7);
  CHECK(status.toString() == "ok");
  CHECK(root.value()->health().code() == rueda::shm::Code::kShutDown);
}
