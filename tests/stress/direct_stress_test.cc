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
  std::vector<int64_t> shape;  // Of what a rank gives; of a gather: that of rank 0.
  int root = 0;
  bool isForeign = false;  // Memory that is not from the session.
  bool isPlaced = false;   // Of a gather: the library finds the place of the result.
};

// Of a gather: the rows that `giver` has for `receiver`; none from some, and not the same from all.
int64_t partOf(const Plan& plan, int giver, int receiver) {
  if (plan.kind == OpKind::kAllgather) receiver = 0;
  return (giver * 2 + receiver + plan.shape[0]) % 3 * plan.shape[0] / 2;
}

// Equal on all ranks: everything follows from seed and lane.
std::vector<Plan> planLane(uint64_t seed, const std::string& lane, int count, int ranks) {
  Random random(seed ^ std::hash<std::string>()(lane));
  std::vector<Plan> plans;
  for (int i = 0; i < count; ++i) {
    Plan plan;
    constexpr OpKind kKinds[] = {OpKind::kBarrier,   OpKind::kBroadcast, OpKind::kBroadcast,
                                 OpKind::kAllgather, OpKind::kAlltoall,  OpKind::kAllgather,
                                 OpKind::kAlltoall,  OpKind::kAllreduce, OpKind::kAllreduce,
                                 OpKind::kAllreduce, OpKind::kAllreduce, OpKind::kAllreduce};
    plan.kind = kKinds[random() % std::size(kKinds)];
    // Names of a lane come again, as those of gradients do; big tensors are rare.
    plan.name = lane + "." + std::to_string(i % 10);
    const uint64_t top = random() % 8 == 0 ? std::size(kCounts) : 4;
    if (plan.kind != OpKind::kBarrier) plan.shape = {kCounts[random() % top]};
    plan.root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    plan.isForeign = random() % 2 == 0;
    plan.isPlaced = random() % 2 == 0;
    plans.push_back(plan);
  }
  return plans;
}

// Whole numbers, exact in float32 in any order of additions.
float valueOf(int rank, size_t salt, size_t i) {
  return static_cast<float>((i * 31 + salt * 7 + static_cast<size_t>(rank) * 101) % 1000);
}

// An operation of one rank with its memory, in place; a gather's result lies elsewhere.
class Running {
 public:
  Running(Client& client, const Plan& plan, size_t salt)
      : client_(client), plan_(plan), salt_(salt) {
    if (plan.kind == OpKind::kBarrier) return;
    shape_ = plan.shape;
    if (gathers()) dealOut();
    const auto count = static_cast<size_t>(shape_[0]);
    data_ = memory(count);
    for (size_t i = 0; i < count; ++i) data_[i] = valueOf(client.rank(), salt, i);
    if (gathers() && !plan.isPlaced) result_ = output_ = memory(resultCount());
  }
  ~Running() {
    for (char* block : blocks_) (void)client_.memory().free(block);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Operation operation() {
    if (plan_.kind == OpKind::kBarrier) return rueda::kit::barrier(plan_.name);
    if (plan_.kind == OpKind::kBroadcast)
      return rueda::kit::broadcast(plan_.name, shape_, data_, plan_.root);
    if (!gathers()) return rueda::kit::allreduce(plan_.name, shape_, data_, data_);
    Operation op = plan_.kind == OpKind::kAllgather
                       ? rueda::kit::allgather(plan_.name, shape_, data_)
                       : rueda::kit::alltoall(plan_.name, shape_, data_, splits_);
    op.output = output_;
    op.outputRoom = output_ == nullptr ? 0 : resultCount() * sizeof(float);
    op.result = &placed_;
    return op;
  }

  // Runs it to its end. What is wrong with it; "" if nothing.
  std::string run() {
    const Status status = client_.run(operation());
    if (placed_ != nullptr) {
      blocks_.push_back(static_cast<char*>(placed_));
      result_ = static_cast<float*>(placed_);
    }
    return verdict(status);
  }

  // Waits for it, as submitted.
  std::string wait(uint64_t handle) {
    const Status status = client_.wait(handle, rueda::kit::kPatience);
    if (!gathers() || !status.isOk()) return verdict(status);
    result_ = reinterpret_cast<const float*>(client_.gathered(handle)->data);
    std::string wrong = verdict(status);
    return client_.release(handle).isOk() ? wrong : plan_.name + ": not released";
  }

 private:
  bool gathers() const { return rueda::shm::gathers(plan_.kind); }
  float* memory(size_t count) {
    if (plan_.isForeign) return foreign_.emplace_back(std::make_unique<float[]>(count + 1)).get();
    blocks_.push_back(client_.memory().allocate(count * sizeof(float)).value());
    return reinterpret_cast<float*>(blocks_.back());
  }
  void dealOut() {
    const int receivers = plan_.kind == OpKind::kAllgather ? 1 : client_.size();
    for (int to = 0; to < receivers; ++to) splits_.push_back(partOf(plan_, client_.rank(), to));
    shape_[0] = std::accumulate(splits_.begin(), splits_.end(), int64_t{0});
  }
  size_t resultCount() const {
    int64_t count = 0;
    for (int giver = 0; giver < client_.size(); ++giver)
      count += partOf(plan_, giver, client_.rank());
    return static_cast<size_t>(count);
  }

  std::string verdict(const Status& status) const {
    if (!status.isOk()) return problem(plan_.name, status);
    if (gathers()) return rowsVerdict();
    const size_t count = plan_.kind == OpKind::kBarrier ? 0 : static_cast<size_t>(plan_.shape[0]);
    for (size_t i = 0; i < count; ++i) {
      float expected = 0;
      if (plan_.kind == OpKind::kBroadcast) expected = valueOf(plan_.root, salt_, i);
      for (int rank = 0; plan_.kind == OpKind::kAllreduce && rank < client_.size(); ++rank)
        expected += valueOf(rank, salt_, i);
      if (data_[i] != expected) return wrong(i, data_[i], expected);
    }
    return "";
  }
  std::string rowsVerdict() const {
    size_t at = 0;
    for (int giver = 0; giver < client_.size(); ++giver) {
      int64_t first = 0;
      for (int to = 0; plan_.kind == OpKind::kAlltoall && to < client_.rank(); ++to)
        first += partOf(plan_, giver, to);
      for (int64_t i = 0; i < partOf(plan_, giver, client_.rank()); ++i, ++at) {
        const float expected = valueOf(giver, salt_, static_cast<size_t>(first + i));
        if (result_[at] != expected) return wrong(at, result_[at], expected);
      }
    }
    return "";
  }
  std::string wrong(size_t i, float is, float expected) const {
    return std::string(rueda::shm::opKindName(plan_.kind)) + " " + plan_.name + "[" +
           std::to_string(i) + "] is " + std::to_string(is) + ", not " + std::to_string(expected);
  }

  Client& client_;
  const Plan& plan_;
  const size_t salt_;
  std::vector<int64_t> shape_;
  std::vector<int64_t> splits_;  // Of a gather: the rows for each rank, or for all.
  float* data_ = nullptr;
  float* output_ = nullptr;
  const float* result_ = nullptr;
  void* placed_ = nullptr;
  std::vector<std::unique_ptr<float[]>> foreign_;
  std::vector<char*> blocks_;
};

// Blocking operations, in the same order on all ranks.
std::string runLane(Client& client, const std::vector<Plan>& plans) {
  for (size_t i = 0; i < plans.size(); ++i) {
    Running running(client, plans[i], i);
    std::string wrong = running.run();
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
      std::string wrong = running[at]->wait(handles[at]);
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
