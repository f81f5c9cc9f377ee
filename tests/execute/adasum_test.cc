// SPDX-License-Identifier: Apache-2.0
#include "daemon/execute/cpu/adasum.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "shm/float_conversion.h"

namespace {

using rueda::execute::Adasum;
using rueda::shm::DType;
using rueda::shm::ReduceOp;
using rueda::shm::ReduceSpec;
using Values = std::vector<double>;

constexpr DType kTypes[] = {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64};

double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// The definition, for two.
Values pairOf(const Values& a, const Values& b) {
  const double both = dot(a, b);
  const double weightA = dot(a, a) == 0 ? 1 : 1 - both / (2 * dot(a, a));
  const double weightB = dot(b, b) == 0 ? 1 : 1 - both / (2 * dot(b, b));
  Values result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = weightA * a[i] + weightB * b[i];
  return result;
}

// And for more: aligned blocks of a power of two first.
Values treeOf(const std::vector<Values>& inputs, size_t begin, size_t end) {
  if (end - begin == 1) return inputs[begin];
  size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return pairOf(treeOf(inputs, begin, begin + half), treeOf(inputs, begin + half, end));
}

// One tensor a rank, in memory of a type.
struct Tensors {
  Tensors(DType type, const std::vector<Values>& inputs) : dtype(type), count(inputs[0].size()) {
    for (const Values& input : inputs) {
      memory.emplace_back(count * rueda::shm::dtypeSize(dtype));
      write(input, memory.back().data());
    }
  }
  void write(const Values& values, char* to) const {
    if (dtype == DType::kFloat64) return rueda::shm::narrow(dtype, values.data(), count, to);
    const std::vector<float> rounded(values.begin(), values.end());
    rueda::shm::narrow(dtype, rounded.data(), count, to);
  }
  Values read(const char* from) const {
    Values values(count);
    if (dtype == DType::kFloat64) {
      rueda::shm::widen(dtype, from, count, values.data());
      return values;
    }
    std::vector<float> wide(count);
    rueda::shm::widen(dtype, from, count, wide.data());
    return {wide.begin(), wide.end()};
  }

  DType dtype;
  size_t count;
  std::vector<std::vector<char>> memory;
};

std::vector<Values> randomInputs(size_t ranks, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<Values> inputs(ranks, Values(count));
  for (Values& input : inputs)
    for (double& value : input) value = normal(random);
  return inputs;
}

// One tensor, its phases one by one; pieces from the last one on, since their order does not count.
void adasum(const ReduceSpec& spec, const rueda::flow::Slice& slice) {
  auto op = std::make_shared<rueda::flow::FusedOp>();
  op->reduce = spec;
  op->slices = {slice};
  Adasum run(op);
  for (size_t phase = 0; phase < run.phases(); ++phase)
    for (size_t piece = run.pieces(); piece > 0; --piece) run.runPiece(phase, piece - 1);
}

double stepOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBfloat16:
      return 0x1p-7;
    case DType::kFloat32:
      return 0x1p-22;
    default:
      return 0x1p-50;
  }
}

}  // namespace

TEST_CASE("any number of ranks get the adaptive sum of the definition, in place or not") {
  const size_t ranks = GENERATE(1u, 2u, 3u, 4u, 5u, 8u);
  const DType dtype = GENERATE(from_range(std::begin(kTypes), std::end(kTypes)));
  const bool inPlace = GENERATE(true, false);
  const size_t count = GENERATE(1u, 1500u, 150000u);  // One block, several, and several pieces.
  CAPTURE(ranks, rueda::shm::dtypeName(dtype), inPlace, count);
  Tensors tensors(dtype, randomInputs(ranks, count, 7));
  std::vector<Values> rounded;
  for (const auto& memory : tensors.memory) rounded.push_back(tensors.read(memory.data()));
  const Values expected = treeOf(rounded, 0, ranks);

  Tensors results = tensors;
  rueda::flow::Slice slice;
  slice.count = count;
  for (size_t rank = 0; rank < ranks; ++rank) {
    slice.inputs.push_back((inPlace ? results : tensors).memory[rank].data());
    slice.outputs.push_back(results.memory[rank].data());
  }
  adasum({dtype, ReduceOp::kAdasum, static_cast<int>(ranks), 0.5, 4.0}, slice);
  for (const auto& memory : results.memory) {
    const Values got = results.read(memory.data());
    double worst = 0;
    for (size_t i = 0; i < count; ++i) worst = std::max(worst, std::abs(got[i] - 2 * expected[i]));
    CHECK(worst < 32 * stepOf(dtype));
    CHECK(memory == results.memory[0]);
  }
}

TEST_CASE("parallel gradients are averaged, orthogonal ones added, zeros change nothing") {
  struct Variant {
    Values a, b, expected;
  };
  const std::vector<Variant> variants = {{{2, 4}, {2, 4}, {2, 4}},
                                         {{1, 0}, {0, 3}, {1, 3}},
                                         {{0, 0}, {5, 6}, {5, 6}},
                                         {{0, 0}, {0, 0}, {0, 0}},
                                         {{1, 0}, {-1, 0}, {0, 0}}};
  for (const Variant& variant : variants) {
    Tensors tensors(DType::kFloat32, {variant.a, variant.b});
    rueda::flow::Slice slice;
    slice.count = 2;
    for (auto& memory : tensors.memory) {
      slice.inputs.push_back(memory.data());
      slice.outputs.push_back(memory.data());
    }
    adasum({DType::kFloat32, ReduceOp::kAdasum, 2}, slice);
    if (variant.a == Values{1, 0} && variant.b == Values{-1, 0}) {
      CHECK(tensors.read(tensors.memory[0].data()) == pairOf(variant.a, variant.b));
    } else {
      CHECK(tensors.read(tensors.memory[0].data()) == variant.expected);
    }
  }
}

TEST_CASE("the zeros of a rank that has joined are skipped, wherever it stands") {
  const auto inputs = randomInputs(3, 100, 3);
  Tensors tensors(DType::kFloat64, inputs);
  const size_t joined = GENERATE(0u, 1u, 2u, 3u);
  rueda::flow::Slice slice;
  slice.count = 100;
  for (auto& memory : tensors.memory) {
    slice.inputs.push_back(memory.data());
    slice.outputs.push_back(memory.data());
  }
  slice.inputs.insert(slice.inputs.begin() + static_cast<ptrdiff_t>(joined), nullptr);
  adasum({DType::kFloat64, ReduceOp::kAdasum, 4}, slice);
  const Values expected = treeOf(inputs, 0, 3);
  const Values got = tensors.read(tensors.memory[2].data());
  for (size_t i = 0; i < 100; ++i) CHECK(got[i] == Approx(expected[i]));
}
