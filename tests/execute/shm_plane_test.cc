// SPDX-License-Identifier: Apache-2.0
#include "daemon/execute/cpu/shm_plane.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <future>
#include <random>

using namespace rueda;  // NOLINT(google-build-using-namespace): a test file
using flow::FusedOp;

namespace {

constexpr std::chrono::seconds kLimit{20};

// An allreduce of `counts.size()` tensors of `ranks` ranks, with its memory.
struct Made {
  std::vector<std::vector<std::vector<float>>> tensors;  // [slice][rank]
  FusedOp op;
};

Made make(const std::vector<uint64_t>& counts, int ranks, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Made made;
  made.op.job = 1;
  made.op.reduce = {shm::DType::kFloat32, shm::ReduceOp::kSum, ranks, 1.0, 1.0};
  made.tensors.resize(counts.size());
  for (size_t s = 0; s < counts.size(); ++s) {
    made.tensors[s].resize(static_cast<size_t>(ranks));
    flow::Slice slice;
    slice.count = counts[s];
    for (auto& tensor : made.tensors[s]) {
      tensor.resize(counts[s]);
      for (float& value : tensor) value = normal(random);
      slice.inputs.push_back(tensor.data());
      slice.outputs.push_back(tensor.data());
    }
    made.op.bytes += counts[s] * sizeof(float);
    made.op.slices.push_back(std::move(slice));
  }
  return made;
}

std::vector<std::vector<float>> expected(const Made& made) {
  std::vector<std::vector<float>> sums;
  for (const flow::Slice& slice : made.op.slices) {
    std::vector<float> sum(slice.count);
    void* output = sum.data();
    shm::reduce(made.op.reduce, slice.inputs.data(), static_cast<int>(slice.inputs.size()), &output,
                1, slice.count);
    sums.push_back(std::move(sum));
  }
  return sums;
}

void runToEnd(execute::ShmPlane* plane, const FusedOp& op) {
  std::promise<void> ended;
  plane->run(std::make_shared<const FusedOp>(op), [&ended] { ended.set_value(); });
  REQUIRE(ended.get_future().wait_for(kLimit) == std::future_status::ready);
}

}  // namespace

TEST_CASE("cutting covers every element of every slice exactly once") {
  std::mt19937 random(Catch::rngSeed());
  for (int round = 0; round < 50; ++round) {
    FusedOp op;
    op.reduce.dtype = GENERATE_COPY(shm::DType::kUint8, shm::DType::kFloat32, shm::DType::kFloat64);
    const size_t slices = 1 + random() % 20;
    for (size_t s = 0; s < slices; ++s) {
      op.slices.push_back({{}, {}, 1 + random() % (round % 2 == 0 ? 1000 : 1000000)});
      op.bytes += op.slices.back().count * shm::dtypeSize(op.reduce.dtype);
    }
    std::vector<uint64_t> next(slices, 0);
    for (const auto& pieces : execute::cutIntoRuns(op))
      for (const execute::Piece& piece : pieces) {
        REQUIRE(piece.count > 0);
        REQUIRE(piece.begin == next[piece.slice]);
        next[piece.slice] += piece.count;
      }
    for (size_t s = 0; s < slices; ++s) REQUIRE(next[s] == op.slices[s].count);
  }
}

TEST_CASE("runs carry about equal traffic") {
  FusedOp op;
  op.slices = {{{}, {}, 100}, {{}, {}, 10000000}, {{}, {}, 7}};
  op.bytes = (100 + 10000000 + 7) * sizeof(float);
  const auto runs = execute::cutIntoRuns(op);
  for (size_t i = 0; i + 1 < runs.size(); ++i) {
    uint64_t elements = 0;
    for (const auto& piece : runs[i]) elements += piece.count;
    REQUIRE(elements == (256 << 10) / sizeof(float));
  }
}

TEST_CASE("an operation without elements ends at once") {
  execute::WorkerPool pool(1);
  execute::ShmPlane plane(pool);
  runToEnd(&plane, FusedOp{});
}

TEST_CASE("sums are the kernel's, bit for bit, inline and by workers") {
  const size_t workers = GENERATE(1, 2, 3);
  const auto counts =
      GENERATE(as<std::vector<uint64_t>>(), std::vector<uint64_t>{1},
               std::vector<uint64_t>{1000, 1, 77}, std::vector<uint64_t>{300000, 5, 123457});
  const int ranks = GENERATE(1, 2, 5);
  execute::WorkerPool pool(workers);
  execute::ShmPlane plane(pool);
  Made made = make(counts, ranks, Catch::rngSeed());
  const auto sums = expected(made);
  runToEnd(&plane, made.op);
  for (size_t s = 0; s < sums.size(); ++s)
    for (const auto& tensor : made.tensors[s])
      REQUIRE(std::memcmp(tensor.data(), sums[s].data(), sums[s].size() * sizeof(float)) == 0);
}

TEST_CASE("a broadcast gives every rank the root's bytes") {
  execute::WorkerPool pool(2);
  execute::ShmPlane plane(pool);
  Made made = make({200000}, 3, 5);
  made.op.kind = shm::OpKind::kBroadcast;
  const std::vector<float> root = made.tensors[0][1];
  made.op.slices[0].inputs = {made.tensors[0][1].data()};
  runToEnd(&plane, made.op);
  for (const auto& tensor : made.tensors[0]) REQUIRE(tensor == root);
}
