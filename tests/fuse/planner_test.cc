// SPDX-License-Identifier: Apache-2.0
#include "daemon/fuse/planner.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "tests/kit/flow_maker.h"

namespace {

using rueda::flow::Decision;
using rueda::flow::FusedOp;
using rueda::flow::Request;
using rueda::flow::Segment;
using rueda::fuse::Policy;
using rueda::shm::DType;
using rueda::shm::OpKind;
using rueda::shm::ReduceOp;

constexpr uint64_t kSegmentBytes = 1 << 20;

// Ranks' memory that decisions of a test lie in: tensors follow each other, with a gap where asked.
class Ranks {
 public:
  explicit Ranks(int size)
      : members_(std::make_shared<const std::vector<int>>(rueda::kit::ranksTo(size))) {
    for (int rank = 0; rank < size; ++rank)
      segments_.push_back(
          rueda::kit::makeSegment(static_cast<uint32_t>(rank) + 1, rank, kSegmentBytes));
  }
  // An in-place sum of `count` elements behind the one before.
  Decision sum(const std::string& name, uint64_t count, DType dtype = DType::kFloat32) {
    Decision decision;
    decision.members = members_;
    decision.requests = rueda::kit::makeRequests(static_cast<int>(segments_.size()), name, count);
    for (Request& request : decision.requests) {
      request.spec.dtype = dtype;
      if (count == 0) continue;
      request.input.segment = segments_[static_cast<size_t>(request.rank)];
      request.input.offset = next_;
      request.output = request.input;
    }
    next_ += decision.spec().bytes();
    return decision;
  }
  void gap() { next_ += 64; }

 private:
  const std::shared_ptr<const std::vector<int>> members_;
  std::vector<std::shared_ptr<Segment>> segments_;
  uint64_t next_ = 0;
};

std::vector<FusedOp> plan(std::vector<Decision> decisions, uint64_t fusionBytes) {
  Policy policy;
  policy.fusionBytes = fusionBytes;
  return rueda::fuse::plan(std::move(decisions), policy);
}

Decision with(Decision decision, const std::function<void(rueda::flow::TensorSpec*)>& change) {
  for (Request& request : decision.requests) change(&request.spec);
  return decision;
}

std::vector<std::string> namesOf(const FusedOp& op) {
  std::vector<std::string> names;
  for (const Decision& decision : op.decisions) names.push_back(decision.requests.front().name);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("no decisions give no operations") { CHECK(plan({}, 1 << 20).empty()); }

TEST_CASE("one decision becomes one operation with its parameters and its memory") {
  Ranks ranks(3);
  Decision decision = with(ranks.sum("x", 10, DType::kFloat16), [](auto* spec) {
    spec->op = ReduceOp::kAverage;
    spec->prescale = 0.5;
    spec->postscale = 2;
  });
  decision.job = 4;
  const Request first = decision.requests[0];
  std::vector<Decision> decisions;
  decisions.push_back(std::move(decision));
  const auto ops = plan(std::move(decisions), 1 << 20);
  REQUIRE(ops.size() == 1);
  CHECK(ops[0].job == 4);
  CHECK(ops[0].kind == OpKind::kAllreduce);
  CHECK(ops[0].reduce.dtype == DType::kFloat16);
  CHECK(ops[0].reduce.op == ReduceOp::kAverage);
  CHECK(ops[0].reduce.ranks == 3);
  CHECK(ops[0].reduce.prescale == 0.5);
  CHECK(ops[0].reduce.postscale == 2);
  CHECK(ops[0].bytes == 20);
  REQUIRE(ops[0].slices.size() == 1);
  CHECK(ops[0].slices[0].count == 10);
  REQUIRE(ops[0].slices[0].inputs.size() == 3);
  CHECK(ops[0].slices[0].inputs[0] == first.input.data());
  CHECK(ops[0].slices[0].outputs[0] == first.output.data());
}

TEST_CASE("a threshold of zero fuses nothing") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  for (const char* name : {"a", "b", "c"}) decisions.push_back(ranks.sum(name, 4));
  CHECK(plan(std::move(decisions), 0).size() == 3);
}

TEST_CASE("operations are filled up to the threshold, not beyond") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  for (const char* name : {"a", "b", "c", "d"}) decisions.push_back(ranks.sum(name, 4));
  const auto ops = plan(std::move(decisions), 32);  // Two of 16 bytes.
  REQUIRE(ops.size() == 2);
  CHECK(namesOf(ops[0]) == Names{"a", "b"});
  CHECK(namesOf(ops[1]) == Names{"c", "d"});
}

TEST_CASE("a tensor larger than the threshold runs alone") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  decisions.push_back(ranks.sum("small", 4));
  decisions.push_back(ranks.sum("large", 1000));
  const auto ops = plan(std::move(decisions), 64);
  REQUIRE(ops.size() == 2);
  CHECK(namesOf(ops[1]) == Names{"large"});
}

TEST_CASE("interleaved data types fuse to one operation each") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  for (int i = 0; i < 10; ++i)
    decisions.push_back(
        ranks.sum(std::to_string(i), 4, i % 2 == 0 ? DType::kFloat32 : DType::kFloat16));
  const auto ops = plan(std::move(decisions), 1 << 20);
  REQUIRE(ops.size() == 2);
  CHECK(namesOf(ops[0]) == Names{"0", "2", "4", "6", "8"});
  CHECK(namesOf(ops[1]) == Names{"1", "3", "5", "7", "9"});
}

TEST_CASE("what differs in anything that matters is not fused") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  decisions.push_back(ranks.sum("plain", 4));
  decisions.push_back(with(ranks.sum("op", 4), [](auto* s) { s->op = ReduceOp::kMin; }));
  decisions.push_back(with(ranks.sum("pre", 4), [](auto* s) { s->prescale = 2; }));
  decisions.push_back(with(ranks.sum("post", 4), [](auto* s) { s->postscale = 2; }));
  decisions.push_back(with(ranks.sum("kind", 4), [](auto* s) { s->kind = OpKind::kBroadcast; }));
  decisions.push_back(with(ranks.sum("root", 4), [](auto* s) {
    s->kind = OpKind::kBroadcast;
    s->root = 1;
  }));
  decisions.push_back(ranks.sum("job", 4));
  decisions.back().job = 1;
  CHECK(plan(std::move(decisions), 1 << 20).size() == 7);
}

TEST_CASE("neighbours become one slice, a gap begins another") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  decisions.push_back(ranks.sum("a", 4));
  decisions.push_back(ranks.sum("b", 6));
  ranks.gap();
  decisions.push_back(ranks.sum("c", 2));
  const auto ops = plan(std::move(decisions), 1 << 20);
  REQUIRE(ops.size() == 1);
  REQUIRE(ops[0].slices.size() == 2);
  CHECK(ops[0].slices[0].count == 10);
  CHECK(ops[0].slices[1].count == 2);
}

TEST_CASE("slices merge only if they adjoin on every rank") {
  Ranks ranks(2);
  Decision a = ranks.sum("a", 4);
  Decision b = ranks.sum("b", 4);
  const bool isInput = GENERATE(true, false);
  (isInput ? b.requests[1].input : b.requests[1].output).offset += 64;
  std::vector<Decision> decisions;
  decisions.push_back(std::move(a));
  decisions.push_back(std::move(b));
  const auto ops = plan(std::move(decisions), 1 << 20);
  REQUIRE(ops.size() == 1);
  CHECK(ops[0].slices.size() == 2);
}

TEST_CASE("a tensor of no elements is carried along without a slice") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  decisions.push_back(ranks.sum("a", 4));
  decisions.push_back(ranks.sum("none", 0));
  decisions.push_back(ranks.sum("b", 4));
  const auto ops = plan(std::move(decisions), 1 << 20);
  REQUIRE(ops.size() == 1);
  CHECK(ops[0].decisions.size() == 3);
  CHECK(ops[0].slices.size() == 1);
}

TEST_CASE("a broadcast reads the root alone and writes all ranks") {
  Ranks ranks(3);
  std::vector<Decision> decisions;
  decisions.push_back(with(ranks.sum("x", 4), [](auto* spec) {
    spec->kind = OpKind::kBroadcast;
    spec->root = 2;
  }));
  const void* source = decisions[0].requests[2].input.data();
  const auto ops = plan(std::move(decisions), 1 << 20);
  REQUIRE(ops.size() == 1);
  REQUIRE(ops[0].slices[0].inputs.size() == 1);
  CHECK(ops[0].slices[0].inputs[0] == source);
  CHECK(ops[0].slices[0].outputs.size() == 3);
}

TEST_CASE("a reducescatter has a slice for each rank that gets rows, and fuses with others") {
  Ranks ranks(3);
  const auto scatter = [](auto* spec) {
    spec->kind = OpKind::kReducescatter;
    spec->shape = {static_cast<int64_t>(spec->count / 2), 2};
  };
  std::vector<Decision> decisions;
  decisions.push_back(with(ranks.sum("four rows", 8), scatter));
  decisions.push_back(with(ranks.sum("two rows", 4), scatter));
  const char* begin = decisions[0].requests[1].input.data();
  const void* last = decisions[0].requests[2].output.data();
  const auto ops = plan(std::move(decisions), 1 << 20);
  REQUIRE(ops.size() == 1);
  CHECK(ops[0].bytes == 48);
  REQUIRE(ops[0].slices.size() == 5);  // Of the second, rank 2 gets none.
  const std::vector<uint64_t> counts = {4, 2, 2, 2, 2};
  for (size_t i = 0; i < counts.size(); ++i) {
    CHECK(ops[0].slices[i].count == counts[i]);
    CHECK(ops[0].slices[i].inputs.size() == 3);
    CHECK(ops[0].slices[i].outputs.size() == 1);
  }
  CHECK(ops[0].slices[2].inputs[1] == begin + 24);
  CHECK(ops[0].slices[2].outputs[0] == last);
}

TEST_CASE("errors, barriers and gathers are left out") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  decisions.push_back(ranks.sum("error", 4));
  decisions.back().error = {rueda::shm::Code::kMismatch, "differs"};
  decisions.push_back(with(ranks.sum("b", 4), [](auto* s) { s->kind = OpKind::kBarrier; }));
  decisions.push_back(with(ranks.sum("g", 4), [](auto* s) { s->kind = OpKind::kAllgather; }));
  decisions.push_back(with(ranks.sum("a", 4), [](auto* s) { s->kind = OpKind::kAlltoall; }));
  CHECK(plan(std::move(decisions), 1 << 20).empty());
}

TEST_CASE("in-order fusion ends with each change of data type") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  for (int i = 0; i < 10; ++i)
    decisions.push_back(
        ranks.sum(std::to_string(i), 4, i % 4 < 2 ? DType::kFloat32 : DType::kFloat16));
  Policy policy;
  policy.lookBack = 1;
  CHECK(rueda::fuse::plan(std::move(decisions), policy).size() == 5);
}

TEST_CASE("groups fuse with others, unless they are to stay apart") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  const uint64_t groups[] = {0, 1, 1, 2, 0, 2};
  for (int i = 0; i < 6; ++i) {
    decisions.push_back(ranks.sum(std::to_string(i), 4));
    decisions.back().group = groups[i];
  }
  Policy policy;
  policy.groupsApart = GENERATE(true, false);
  const auto ops = rueda::fuse::plan(std::move(decisions), policy);
  REQUIRE(ops.size() == (policy.groupsApart ? 3 : 1));
  if (!policy.groupsApart) return;
  CHECK(namesOf(ops[0]) == Names{"0", "4"});
  CHECK(namesOf(ops[1]) == Names{"1", "2"});
  CHECK(namesOf(ops[2]) == Names{"3", "5"});
}

TEST_CASE("higher priorities run first, equal ones in the order in which they became complete") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  const int priorities[] = {0, 5, -1, 5};
  for (int i = 0; i < 4; ++i) {
    decisions.push_back(ranks.sum(std::to_string(i), 4));
    decisions.back().requests.front().priority = priorities[i];
  }
  std::vector<std::string> order;
  for (const FusedOp& op : plan(std::move(decisions), 0)) order.push_back(namesOf(op).front());
  CHECK(order == Names{"1", "3", "0", "2"});
}

TEST_CASE("process sets do not fuse with each other") {
  Ranks all(2);
  Ranks others(2);
  std::vector<Decision> decisions;
  decisions.push_back(all.sum("a", 4));
  decisions.push_back(others.sum("b", 4));
  CHECK(plan(std::move(decisions), 1 << 20).size() == 2);
}

TEST_CASE("one that has joined counts with zeros, or not at all") {
  Ranks ranks(3);
  Decision decision = with(ranks.sum("x", 4), [](auto* s) { s->op = ReduceOp::kAverage; });
  const bool leftOut = GENERATE(true, false);
  decision.requests.erase(decision.requests.begin() + 1);
  decision.joined = {{1, leftOut}};
  std::vector<Decision> decisions;
  decisions.push_back(std::move(decision));
  const auto ops = plan(std::move(decisions), 1 << 20);
  REQUIRE(ops.size() == 1);
  CHECK(ops[0].reduce.ranks == (leftOut ? 2 : 3));
  const auto& inputs = ops[0].slices[0].inputs;
  CHECK(inputs.size() == (leftOut ? 2 : 3));
  CHECK((inputs[1] == nullptr) == !leftOut);
  CHECK(ops[0].slices[0].outputs.size() == 2);
}

TEST_CASE("Adasum keeps its tensors apart") {
  Ranks ranks(2);
  std::vector<Decision> decisions;
  for (const char* name : {"a", "b"})
    decisions.push_back(with(ranks.sum(name, 4), [](auto* s) { s->op = ReduceOp::kAdasum; }));
  const auto ops = plan(std::move(decisions), 1 << 20);
  REQUIRE(ops.size() == 1);
  CHECK(ops[0].slices.size() == 2);
}

TEST_CASE("random decisions: nothing is lost or mixed, the threshold holds, order is kept") {
  const uint32_t seed = Catch::rngSeed() + static_cast<uint32_t>(GENERATE(range(0, 200)));
  CAPTURE(seed);
  std::mt19937 random(seed);
  Ranks ranks(2);
  const uint64_t threshold = random() % 500;
  std::vector<Decision> decisions;
  for (uint32_t i = 0; i < random() % 60; ++i) {
    decisions.push_back(ranks.sum(std::to_string(i), random() % 60,
                                  random() % 2 == 0 ? DType::kFloat32 : DType::kFloat16));
    const auto op = random() % 2 == 0 ? ReduceOp::kSum : ReduceOp::kMax;
    decisions.back() = with(std::move(decisions.back()), [op](auto* s) { s->op = op; });
    decisions.back().job = random() % 2;
    if (random() % 3 == 0) ranks.gap();
  }
  const size_t count = decisions.size();
  size_t found = 0;
  std::map<std::tuple<uint64_t, DType, ReduceOp>, int> last;  // Of a class, in order of running.
  for (const FusedOp& op : plan(std::move(decisions), threshold)) {
    uint64_t bytes = 0;
    uint64_t elements = 0;
    REQUIRE_FALSE(op.decisions.empty());
    for (const Decision& decision : op.decisions) {
      ++found;
      bytes += decision.spec().bytes();
      REQUIRE(decision.job == op.job);
      REQUIRE(decision.spec().dtype == op.reduce.dtype);
      REQUIRE(decision.spec().op == op.reduce.op);
      const int number = std::stoi(decision.requests.front().name);
      const auto [known, isNew] = last.try_emplace({op.job, op.reduce.dtype, op.reduce.op}, number);
      REQUIRE((isNew || known->second < number));
      known->second = number;
    }
    for (const auto& slice : op.slices) elements += slice.count;
    REQUIRE(bytes == op.bytes);
    REQUIRE(elements * rueda::shm::dtypeSize(op.reduce.dtype) == bytes);
    REQUIRE((op.decisions.size() == 1 || bytes <= threshold));
  }
  CHECK(found == count);
}
