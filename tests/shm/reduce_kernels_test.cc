// SPDX-License-Identifier: Apache-2.0
#include "shm/reduce_kernels.h"

#include <immintrin.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "tests/kit/reduce_check.h"
#include "tests/kit/reference_reduce.h"
#include "tests/kit/tensors.h"

namespace rueda::shm {
namespace {

using kit::addresses;
using kit::checkReduce;
using kit::Inputs;
using kit::isas;
using kit::Random;
using kit::randomInputs;
using kit::reduceOne;
using kit::referenceReduce;

const int kInputCounts[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 33};
const size_t kSizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 1000, 4099};
constexpr int kMostInputs = 33;
constexpr size_t kMostElements = 4099;

// Every input count, size and instruction set.
std::string sweep(ReduceSpec spec, const Inputs& inputs) {
  for (const int k : kInputCounts) {
    if (spec.ranks == 0 || spec.op == ReduceOp::kAverage) spec.ranks = k;
    const std::vector<char> expected = referenceReduce(spec, addresses(inputs, k), kMostElements);
    for (const size_t count : kSizes) {
      for (const Isa isa : isas()) {
        const std::string wrong = checkReduce(spec, inputs, k, count, isa, expected);
        if (!wrong.empty()) return wrong;
      }
    }
  }
  return "";
}

TEST_CASE("reduce writes the reference's bits for every type, operation and instruction set") {
  const DType dtype = GENERATE(from_range(std::begin(kit::kDTypes), std::end(kit::kDTypes)));
  Random random(Catch::rngSeed());
  INFO("seed " << Catch::rngSeed() << " (--rng-seed)");
  const Inputs inputs = randomInputs(dtype, kMostInputs, kMostElements, random);
  const Inputs before = inputs;
  for (const ReduceOp op : kit::opsOf(dtype)) CHECK(sweep({dtype, op}, inputs) == "");
  CHECK(inputs == before);
}

TEST_CASE("scales apply before and after combining, in the accumulator's type") {
  const DType dtype = GENERATE(from_range(std::begin(kit::kDTypes), std::end(kit::kDTypes)));
  Random random(Catch::rngSeed());
  INFO("seed " << Catch::rngSeed() << " (--rng-seed)");
  const Inputs inputs = randomInputs(dtype, 17, 600, random);
  const double scales[][2] = {{0.3, 1}, {1, 0.7}, {-1.7, 3}, {1e30, 1e-30}, {0.1, NAN}, {1e9, 1e9}};
  for (const auto& [prescale, postscale] : scales) {
    for (const ReduceOp op : kit::opsOf(dtype)) {
      for (const int k : {1, 2, 3, 4, 6, 8, 17}) {
        const ReduceSpec spec{dtype, op, k + 1, prescale, postscale};
        const auto expected = referenceReduce(spec, addresses(inputs, k), 600);
        for (const Isa isa : isas()) {
          CHECK(checkReduce(spec, inputs, k, 77, isa, expected) == "");
          CHECK(checkReduce(spec, inputs, k, 600, isa, expected) == "");
        }
      }
    }
  }
}

TEST_CASE("a range cut anywhere gives the bits of the whole") {
  const DType dtype = GENERATE(from_range(std::begin(kit::kDTypes), std::end(kit::kDTypes)));
  Random random(Catch::rngSeed());
  INFO("seed " << Catch::rngSeed() << " (--rng-seed)");
  const size_t bytes = dtypeSize(dtype);
  const Inputs inputs = randomInputs(dtype, 12, 3000, random);
  for (const int k : {2, 4, 5, 12}) {
    const ReduceSpec spec{dtype, ReduceOp::kAverage, k};
    std::vector<char> whole(3000 * bytes), pieces(3000 * bytes);
    const std::vector<const void*> from = addresses(inputs, k);
    void* to = whole.data();
    reduce(spec, from.data(), k, &to, 1, 3000);
    for (size_t first = 0; first < 3000;) {
      const size_t count = std::min<size_t>(1 + random() % 700, 3000 - first);
      std::vector<const void*> cut;
      for (const void* input : from) cut.push_back(static_cast<const char*>(input) + first * bytes);
      to = pieces.data() + first * bytes;
      const std::vector<Isa> all = isas();
      reduce(spec, cut.data(), k, &to, 1, count, all[random() % all.size()]);
      first += count;
    }
    CHECK(pieces == whole);
  }
}

TEST_CASE("floats combine along the balanced tree") {
  const float tiny = 0x1p-24f;  // 1 + tiny is 1, tiny + tiny counts.
  CHECK(reduceOne<float>({}, {1, tiny, tiny, tiny}) == 1 + 0x1p-23f);
  CHECK(reduceOne<float>({}, {1, 0, tiny, tiny}) == 1 + 0x1p-23f);
  CHECK(reduceOne<float>({}, {1, tiny, 0, tiny}) == 1);
  CHECK(reduceOne<float>({}, {0, 1, 0, 0, tiny}) == 1);
}

TEST_CASE("NaN from any side wins and has one form") {
  for (const ReduceOp op : kit::kReduceOps) {
    const ReduceSpec spec{DType::kFloat32, op, 2};
    for (const std::vector<float>& values : {std::vector<float>{NAN, 1}, {1, -NAN}, {NAN, -NAN}}) {
      const float result = reduceOne<float>(spec, values);
      uint32_t bits;
      std::memcpy(&bits, &result, sizeof(bits));
      CHECK(bits == 0x7fc00000);
    }
  }
}

TEST_CASE("the caller's flush-to-zero and rounding modes neither matter nor change") {
  const unsigned before = _mm_getcsr();
  const unsigned odd = 0x1f80 | _MM_FLUSH_ZERO_ON | 0x40 /* denormals are zero */ | _MM_ROUND_UP;
  const std::vector<float> values = {0x1p-140f, 0x1p-140f, 1, 0x1p-30f};
  _mm_setcsr(odd);
  const float denormal = reduceOne<float>({}, {values[0], values[1]});
  const float rounded = reduceOne<float>({}, {values[2], values[3]});
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  CHECK((after & ~0x3fu) == odd);
  CHECK(denormal == 0x1p-139f);
  CHECK(rounded == 1);
}

TEST_CASE("hundreds of inputs and outputs work") {
  Random random(Catch::rngSeed());
  const Inputs inputs = randomInputs(DType::kFloat16, 300, 40, random);
  const ReduceSpec spec{DType::kFloat16, ReduceOp::kAverage, 300};
  const auto expected = referenceReduce(spec, addresses(inputs, 300), 40);
  for (const Isa isa : isas()) {
    CHECK(checkReduce(spec, inputs, 300, 40, isa, expected) == "");
  }
}

TEST_CASE("one input is copied to the outputs as it is") {
  uint32_t signalling = 0x7f800001, first = 0, second = 0;
  const void* input = &signalling;
  void* outputs[] = {&first, &signalling, &second};
  reduce({}, &input, 1, outputs, 3, 1);
  CHECK(first == 0x7f800001);
  CHECK(second == 0x7f800001);
}

}  // namespace
}  // namespace rueda::shm
