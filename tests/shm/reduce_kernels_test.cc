// SPDX-License-Identifier: Apache-2.0
#include "shm/reduce_kernels.h"

#include <immintrin.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/kit/reference_reduce.h"

namespace rueda::shm {
namespace {

using kit::referenceReduce;

const DType kDTypes[] = {DType::kUint8,   DType::kInt8,  DType::kUint16,  DType::kInt16,
                         DType::kInt32,   DType::kInt64, DType::kFloat16, DType::kFloat32,
                         DType::kFloat64, DType::kBool,  DType::kBfloat16};
const ReduceOp kOps[] = {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax,
                         ReduceOp::kProduct};
const int kInputCounts[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 33};
const size_t kSizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 1000, 4099};
constexpr int kMostInputs = 33;
constexpr size_t kMostElements = 4099;

std::vector<Isa> isas() {
  std::vector<Isa> result = {Isa::kPlain};
  if (bestIsa() != Isa::kPlain) result.push_back(Isa::kAvx2);
  if (bestIsa() == Isa::kAvx512) result.push_back(Isa::kAvx512);
  return result;
}

using Random = std::mt19937_64;

// Ordinary values, so that sums round, with a few zeros, denormals, infinities and NaNs.
double randomFloat(Random& random) {
  const double value = std::uniform_real_distribution<double>(-8, 8)(random);
  switch (random() % 256) {
    case 0:
      return std::copysign(0.0, value);
    case 1:
      return value * 1e-6;  // Denormal in float16.
    case 2:
      return value * 1e-39;  // Denormal in float32 and bfloat16.
    case 3:
      return value * 1e4;  // Sums overflow float16.
    case 4:
      return value * 4e37;  // Sums overflow float32.
    case 5:
      return std::copysign(INFINITY, value);
    case 6:
      return NAN;
    default:
      return value;
  }
}

// NaNs get a sign and a payload, which results must not depend on.
template <typename Bits, typename T>
void putFloat(char* to, T value, Bits quietNan, Random& random) {
  Bits bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (value != value) {
    bits = quietNan | (random() & 7) | (random() % 2 != 0 ? Bits{1} << (sizeof(Bits) * 8 - 1) : 0);
  }
  std::memcpy(to, &bits, sizeof(bits));
}

std::vector<char> randomArray(DType dtype, size_t count, Random& random) {
  const size_t bytes = dtypeSize(dtype);
  std::vector<char> array(count * bytes);
  for (size_t i = 0; i < count; ++i) {
    char* to = array.data() + i * bytes;
    const double value = isFloating(dtype) ? randomFloat(random) : 0;
    const float narrow = static_cast<float>(value);
    uint64_t bits = random();
    if (dtype == DType::kFloat16)
      bits = kit::Half::encode(narrow) | (std::isnan(value) ? bits & 7 : 0);
    if (dtype == DType::kBfloat16)
      bits = kit::Brain::encode(narrow) | (std::isnan(value) ? bits & 7 : 0);
    if (dtype == DType::kBool) bits = bits % 4 == 0 ? bits >> 8 : bits % 2;
    std::memcpy(to, &bits, bytes);
    if (dtype == DType::kFloat32) putFloat(to, narrow, uint32_t{0x7fc00000}, random);
    if (dtype == DType::kFloat64) putFloat(to, value, uint64_t{0x7ff8} << 48, random);
  }
  return array;
}

// Arrays at addresses of every alignment, each followed by bytes that nobody may write.
class Arrays {
 public:
  Arrays(int number, size_t bytes) : bytes_(bytes) {
    for (int i = 0; i < number; ++i) {
      offsets_.push_back(i * 5 % 67);
      memory_.emplace_back(offsets_.back() + bytes + kGuard, kFill);
    }
  }
  char* at(int i) { return memory_[i].data() + offsets_[i]; }
  std::vector<void*> all() {
    std::vector<void*> result;
    for (size_t i = 0; i < memory_.size(); ++i) result.push_back(at(i));
    return result;
  }
  bool guardsIntact() {
    for (size_t i = 0; i < memory_.size(); ++i) {
      for (size_t j = 0; j < memory_[i].size(); ++j) {
        const bool inside = j >= offsets_[i] && j < offsets_[i] + bytes_;
        if (!inside && memory_[i][j] != kFill) return false;
      }
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr char kFill = 0x5a;
  size_t bytes_;
  std::vector<size_t> offsets_;
  std::vector<std::vector<char>> memory_;
};

using Inputs = std::vector<std::vector<char>>;

Inputs randomInputs(DType dtype, int number, size_t count, Random& random) {
  Inputs inputs;
  for (int i = 0; i < number; ++i) inputs.push_back(randomArray(dtype, count, random));
  return inputs;
}

std::vector<const void*> addresses(const Inputs& inputs, int number) {
  std::vector<const void*> result;
  for (int i = 0; i < number; ++i) result.push_back(inputs[i].data());
  return result;
}

std::string describe(const ReduceSpec& spec, int inputCount, size_t count, Isa isa) {
  char text[200];
  std::snprintf(text, sizeof(text), "%s %s of %d x %zu on %s, ranks %d, prescale %g, postscale %g",
                dtypeName(spec.dtype), reduceOpName(spec.op), inputCount, count, isaName(isa),
                spec.ranks, spec.prescale, spec.postscale);
  return text;
}

// "" or what is wrong with the outputs.
std::string compare(Arrays& arrays, int number, const std::vector<char>& expected, size_t count,
                    const ReduceSpec& spec) {
  const size_t bytes = dtypeSize(spec.dtype);
  for (int m = 0; m < number; ++m) {
    for (size_t i = 0; i < count; ++i) {
      if (std::memcmp(arrays.at(m) + i * bytes, expected.data() + i * bytes, bytes) == 0) continue;
      uint64_t got = 0, want = 0;
      std::memcpy(&got, arrays.at(m) + i * bytes, bytes);
      std::memcpy(&want, expected.data() + i * bytes, bytes);
      char text[120];
      std::snprintf(text, sizeof(text), ": output %d element %zu is %llx, not %llx", m, i,
                    static_cast<unsigned long long>(got), static_cast<unsigned long long>(want));
      return text;
    }
  }
  return arrays.guardsIntact() ? "" : ": wrote outside of an array";
}

// Runs in place and out of place. Returns "" or the first difference from `expected`, whose first
// `count` elements count.
std::string checkReduce(const ReduceSpec& spec, const Inputs& inputs, int inputCount, size_t count,
                        Isa isa, const std::vector<char>& expected) {
  const size_t bytes = count * dtypeSize(spec.dtype);
  Arrays inPlace(inputCount, bytes);
  for (int k = 0; k < inputCount && bytes > 0; ++k) {
    std::memcpy(inPlace.at(k), inputs[k].data(), bytes);
  }
  const std::vector<void*> both = inPlace.all();
  reduce(spec, both.data(), inputCount, both.data(), inputCount, count, isa);
  std::string wrong = compare(inPlace, inputCount, expected, count, spec);
  if (!wrong.empty()) return describe(spec, inputCount, count, isa) + " in place" + wrong;

  Arrays outputs(2, bytes);
  const std::vector<const void*> from = addresses(inputs, inputCount);
  const std::vector<void*> to = outputs.all();
  reduce(spec, from.data(), inputCount, to.data(), 2, count, isa);
  wrong = compare(outputs, 2, expected, count, spec);
  if (!wrong.empty()) return describe(spec, inputCount, count, isa) + wrong;
  return "";
}

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
  const DType dtype = GENERATE(from_range(std::begin(kDTypes), std::end(kDTypes)));
  Random random(Catch::rngSeed());
  INFO("seed " << Catch::rngSeed() << " (--rng-seed)");
  const Inputs inputs = randomInputs(dtype, kMostInputs, kMostElements, random);
  const Inputs before = inputs;
  for (const ReduceOp op : kOps) CHECK(sweep({dtype, op}, inputs) == "");
  CHECK(inputs == before);
}

TEST_CASE("scales apply before and after combining, in the accumulator's type") {
  const DType dtype = GENERATE(from_range(std::begin(kDTypes), std::end(kDTypes)));
  Random random(Catch::rngSeed());
  INFO("seed " << Catch::rngSeed() << " (--rng-seed)");
  const Inputs inputs = randomInputs(dtype, 17, 600, random);
  const double scales[][2] = {{0.3, 1}, {1, 0.7}, {-1.7, 3}, {1e30, 1e-30}, {0.1, NAN}, {1e9, 1e9}};
  for (const auto& [prescale, postscale] : scales) {
    for (const ReduceOp op : kOps) {
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
  const DType dtype = GENERATE(from_range(std::begin(kDTypes), std::end(kDTypes)));
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

// The result for one element from each of the inputs, on every instruction set the same.
template <typename T>
T reduceOne(ReduceSpec spec, const std::vector<T>& values) {
  std::vector<const void*> inputs;
  for (const T& value : values) inputs.push_back(&value);
  T result{};
  void* output = &result;
  const int k = static_cast<int>(values.size());
  reduce(spec, inputs.data(), k, &output, 1, 1);
  for (const Isa isa : isas()) {
    T other{};
    output = &other;
    reduce(spec, inputs.data(), k, &output, 1, 1, isa);
    CHECK(std::memcmp(&other, &result, sizeof(T)) == 0);
  }
  return result;
}

TEST_CASE("integer averages are exact quotients, truncated towards zero") {
  ReduceSpec spec{DType::kInt32, ReduceOp::kAverage, 2};
  CHECK(reduceOne<int32_t>(spec, {3, 4}) == 3);
  CHECK(reduceOne<int32_t>(spec, {-3, -4}) == -3);
  CHECK(reduceOne<int32_t>(spec, {INT32_MIN, 0}) == INT32_MIN / 2);
  for (spec.ranks = 1; spec.ranks < 3000; ++spec.ranks) {  // 49 * (1.0 / 49) is below 1.
    CHECK(reduceOne<int32_t>(spec, {spec.ranks}) == 1);
    CHECK(reduceOne<int32_t>(spec, {-spec.ranks}) == -1);
    CHECK(reduceOne<int32_t>(spec, {spec.ranks - 1}) == 0);
    const int largest = INT32_MAX / spec.ranks * spec.ranks;
    CHECK(reduceOne<int32_t>(spec, {largest}) == largest / spec.ranks);
    CHECK(reduceOne<int32_t>(spec, {largest - 1}) == (largest - 1) / spec.ranks);
  }
  spec = {DType::kInt64, ReduceOp::kAverage, 3};
  const int64_t beyondDouble = (int64_t{1} << 60) + 1;
  CHECK(reduceOne<int64_t>(spec, {beyondDouble * 3, 0, 0}) == beyondDouble);
  CHECK(reduceOne<int64_t>(spec, {INT64_MIN, 0, 0}) == INT64_MIN / 3);
}

TEST_CASE("integer sums wrap and scaled integers saturate") {
  CHECK(reduceOne<int8_t>({DType::kInt8}, {100, 100}) == -56);
  CHECK(reduceOne<uint8_t>({DType::kUint8}, {200, 100}) == 44);
  CHECK(reduceOne<int64_t>({DType::kInt64}, {INT64_MAX, 1}) == INT64_MIN);
  CHECK(reduceOne<int16_t>({DType::kInt16, ReduceOp::kProduct}, {300, 300}) == 24464);
  CHECK(reduceOne<int32_t>({DType::kInt32, ReduceOp::kSum, 1, 1, 0.5}, {-7}) == -3);
  CHECK(reduceOne<int8_t>({DType::kInt8, ReduceOp::kSum, 1, 1, 1e3}, {-7}) == -128);
  CHECK(reduceOne<uint16_t>({DType::kUint16, ReduceOp::kSum, 1, -1, 1}, {7, 0}) == 0);
  CHECK(reduceOne<int64_t>({DType::kInt64, ReduceOp::kSum, 1, 1, 2}, {INT64_MAX}) == INT64_MAX);
  CHECK(reduceOne<int64_t>({DType::kInt64, ReduceOp::kSum, 1, 1, 2}, {INT64_MIN}) == INT64_MIN);
  CHECK(reduceOne<int64_t>({DType::kInt64, ReduceOp::kSum, 1, 1, NAN}, {5}) == 0);
}

TEST_CASE("bool is 'or' for sum, average and max, 'and' for product and min") {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMax}) {
    CHECK(reduceOne<uint8_t>({DType::kBool, op, 3}, {0, 128, 0}) == 1);
    CHECK(reduceOne<uint8_t>({DType::kBool, op, 2}, {0, 0}) == 0);
  }
  for (const ReduceOp op : {ReduceOp::kProduct, ReduceOp::kMin}) {
    CHECK(reduceOne<uint8_t>({DType::kBool, op, 3}, {1, 2, 4}) == 1);
    CHECK(reduceOne<uint8_t>({DType::kBool, op, 2}, {1, 0}) == 0);
  }
  CHECK(reduceOne<uint8_t>({DType::kBool}, {77}) == 1);
}

TEST_CASE("floats combine along the balanced tree") {
  const float tiny = 0x1p-24f;  // 1 + tiny is 1, tiny + tiny counts.
  CHECK(reduceOne<float>({}, {1, tiny, tiny, tiny}) == 1 + 0x1p-23f);
  CHECK(reduceOne<float>({}, {1, 0, tiny, tiny}) == 1 + 0x1p-23f);
  CHECK(reduceOne<float>({}, {1, tiny, 0, tiny}) == 1);
  CHECK(reduceOne<float>({}, {0, 1, 0, 0, tiny}) == 1);
}

TEST_CASE("every float16 and bfloat16 is read and rounded as the reference does") {
  const DType dtype = GENERATE(DType::kFloat16, DType::kBfloat16);
  std::vector<char> all(65536 * 2), shuffled(65536 * 2);
  for (unsigned i = 0; i < 65536; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i), other = static_cast<uint16_t>(i * 40503 + 7);
    std::memcpy(all.data() + 2 * i, &bits, 2);
    std::memcpy(shuffled.data() + 2 * i, &other, 2);
  }
  for (const ReduceOp op : kOps) {
    const ReduceSpec spec{dtype, op, 3};  // Thirds need rounding.
    const auto expected = referenceReduce(spec, {all.data(), shuffled.data()}, 65536);
    for (const Isa isa : isas()) {
      CHECK(checkReduce(spec, {all, shuffled}, 2, 65536, isa, expected) == "");
    }
  }
}

TEST_CASE("NaN from any side wins and has one form") {
  for (const ReduceOp op : kOps) {
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
