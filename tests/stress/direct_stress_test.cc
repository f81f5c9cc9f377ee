// SPDX-License-Identifier: Apache-2.0

// Ranks in which several threads run blocking and asynchronous operations at once, in orders that
// differ between ranks: operations meet on the board, miss each other there, and come together in
// the ring. Every element of every result is compared.
//
// Ranks map the board and the segments at addresses of their own, so the thread sanitizer sees the
// threads of one rank, and the daemon's, against each other, but not one rank against another: that
// part is checked by the results alone.

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>
#include <random>
#include <thread>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"
#include "tests/stress/rounds.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::DaemonFixture;
using rueda::kit::problem;
using rueda::shm::OpKind;
using rueda::shm::Status;
using Random = std::mt19937_64;

// Inline in a post, just over that, several claims of a slice, and several staged blocks.
constexpr int64_t kCounts[] = {1, 14, 15, 1000, 70000, 140000};

// One operation as all ranks plan it. A rank's values follow from its place.
struct Plan {
  OpKind kind = OpKind::kAllreduce;
  std::string name;
  std::vector<int64_t> shape;
  int root = 0;
  bool isForeign = false;  // Memory that is not from the session.
};

// Equal on all ranks: everything follows from seed and lane.
std::vector<Plan> planLane(uint64_t seed, const std::string& lane, int count, int ranks) {
  Random random(seed ^ std::hash<std::string>()(lane));
  std::vector<Plan> plans;
  for (int i = 0; i < count; ++i) {
    Plan plan;
    const uint64_t kind = random() % 8;
    plan.kind = kind == 0 ? OpKind::kBarrier : kind < 3 ? OpKind::kBroadcast : OpKind::kAllreduce;
    // Names of a lane come again, as those of gradients do; big tensors are rare.
    plan.name = lane + "." + std::to_string(i % 10);
    const uint64_t top = random() % 8 == 0 ? std::size(kCounts) : 4;
    if (plan.kind != OpKind::kBarrier) plan.shape = {kCounts[random() % top]};
    plan.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    plan.isForeign = random() % 2 == 0;
    plans.push_back(plan);
  }
  return plans;
}

// Whole numbers, exact in float32 in any order of additions.
float valueOf(int rank, size_t salt, size_t i) {
  return static_cast<float>((i * 31 + salt * 7 + static_cast<size_t>(rank) * 101) % 1000);
}

// An operation of one rank with its memory, in place.
class Running {
 public:
  Running(Client& client, const Plan& plan, size_t salt)
      : client_(client), plan_(plan), salt_(salt) {
    if (plan.kind == OpKind::kBarrier) return;
    const auto count = static_cast<size_t>(plan.shape[0]);
    if (!plan.isForeign) block_ = client.memory().allocate(count * sizeof(float)).value();
    if (plan.isForeign) foreign_.resize(count);
    for (size_t i = 0; i < count; ++i) data()[i] = valueOf(client.rank(), salt, i);
  }
  ~Running() {
    if (block_ != nullptr) (void)client_.memory().free(block_);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Operation operation() {
    if (plan_.kind == OpKind::kBarrier) return rueda::kit::barrier(plan_.name);
    if (plan_.kind == OpKind::kBroadcast)
      return rueda::kit::broadcast(plan_.name, plan_.shape, data(), plan_.root);
    return rueda::kit::allreduce(plan_.name, plan_.shape, data(), data());
  }

  // What is wrong after the operation ended with `status`; "" if nothing.
  std::string verdict(const Status& status) {
    if (!status.isOk()) return problem(plan_.name, status);
    const size_t count = plan_.kind == OpKind::kBarrier ? 0 : static_cast<size_t>(plan_.shape[0]);
    for (size_t i = 0; i < count; ++i) {
      float expected = 0;
      if (plan_.kind == OpKind::kBroadcast) expected = valueOf(plan_.root, salt_, i);
      for (int rank = 0; plan_.kind == OpKind::kAllreduce && rank < client_.size(); ++rank)
        expected += valueOf(rank, salt_, i);
      if (data()[i] != expected)
        return plan_.name + "[" + std::to_string(i) + "] of " + std::to_string(count) + " is " +
               std::to_string(data()[i]) + ", not " + std::to_string(expected);
    }
    return "";
  }

 private:
  float* data() { return plan_.isForeign ? foreign_.data() : reinterpret_cast<float*>(block_); }

  Client& client_;
  const Plan& plan_;
  const size_t salt_;
  std::vector<float> foreign_;
  char* block_ = nullptr;
};

// Blocking operations, in the same order on all ranks.
std::string runLane(Client& client, const std::vector<Plan>& plans) {
  for (size_t i = 0; i < plans.size(); ++i) {
    Running running(client, plans[i], i);
    std::string wrong = running.verdict(client.run(running.operation()));
    if (!wrong.empty()) return wrong;
  }
  return "";
}

// Asynchronous operations: ten at a time, each rank in an order of its own; sometimes two of them
// as a group, where all ranks agree on that.
std::string submitLane(Client& client, const std::vector<Plan>& plans, uint64_t seed) {
  Random random(seed + static_cast<uint64_t>(client.rank()));
  for (size_t first = 0; first + 10 <= plans.size(); first += 10) {
    std::vector<std::unique_ptr<Running>> running;
    for (size_t i = first; i < first + 10; ++i)
      running.push_back(std::make_unique<Running>(client, plans[i], i));
    std::vector<std::vector<size_t>> batches = {{0, 1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}, {9}};
    std::shuffle(batches.begin(), batches.end(), random);
    std::vector<uint64_t> handles(10);
    for (const auto& batch : batches) {
      std::vector<Operation> ops;
      std::vector<uint64_t> given;
      for (const size_t at : batch) ops.push_back(running[at]->operation());
      const Status submitted = client.submit(ops, &given);
      if (!submitted.isOk()) return problem("submit", submitted);
      for (size_t i = 0; i < batch.size(); ++i) handles[batch[i]] = given[i];
    }
    std::vector<size_t> order(10);
    std::iota(order.begin(), order.end(), size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t at : order) {
      std::string wrong = running[at]->verdict(client.wait(handles[at], rueda::kit::kPatience));
      if (!wrong.empty()) return wrong;
    }
  }
  return "";
}

struct Lanes {
  int blocking = 0;
  int submitting = 0;
  int operations = 0;  // Of each lane.
};

// One thread a lane. The texts of those that had something to say.
std::string runLanes(Client& client, const Lanes& lanes, uint64_t seed) {
  std::vector<std::string> texts(static_cast<size_t>(lanes.blocking + lanes.submitting));
  std::vector<std::thread> threads;
  for (int lane = 0; lane < lanes.blocking + lanes.submitting; ++lane) {
    threads.emplace_back([&, lane] {
      const std::string name = "lane" + std::to_string(lane);
      const auto plans = planLane(seed, name, lanes.operations, client.size());
      texts[static_cast<size_t>(lane)] =
          lane < lanes.blocking ? runLane(client, plans) : submitLane(client, plans, seed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (const std::string& text : texts) all += text;
  return all;
}

std::string stressed(int ranks, const Lanes& lanes) {
  DaemonFixture daemon;
  const uint64_t seed = Catch::rngSeed();
  return rueda::kit::runRanks(daemon, ranks,
                              [&](Client& client, int) { return runLanes(client, lanes, seed); });
}

}  // namespace

TEST_CASE("blocking operations of one thread a rank give exact results") {
  const int ranks = GENERATE(2, 3, 4);
  CAPTURE(ranks);
  CHECK(stressed(ranks, {1, 0, rueda::stress::rounds(300)}) == "");
}

TEST_CASE("threads that take turns on the board in different orders give exact results") {
  const int ranks = GENERATE(2, 4);
  CAPTURE(ranks);
  CHECK(stressed(ranks, {3, 0, rueda::stress::rounds(60)}) == "");
}

TEST_CASE("blocking and asynchronous operations at once give exact results") {
  const int ranks = GENERATE(2, 3, 4);
  CAPTURE(ranks);
  CHECK(stressed(ranks, {2, 2, rueda::stress::rounds(40)}) == "");
}
