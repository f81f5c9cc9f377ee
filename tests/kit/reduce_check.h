// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs shm::reduce in place and out of place, at odd addresses, on every instruction set of this
// machine, and compares with what is expected, bit for bit. For the main thread of tests.

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "shm/reduce_kernels.h"
#include "tests/kit/reduce_inputs.h"

namespace rueda::kit {

inline std::vector<shm::Isa> isas() {
  std::vector<shm::Isa> result = {shm::Isa::kPlain};
  if (shm::bestIsa() != shm::Isa::kPlain) result.push_back(shm::Isa::kAvx2);
  if (shm::bestIsa() == shm::Isa::kAvx512) result.push_back(shm::Isa::kAvx512);
  return result;
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

inline std::string describe(const shm::ReduceSpec& spec, int inputCount, size_t count,
                            shm::Isa isa) {
  char text[200];
  std::snprintf(text, sizeof(text), "%s %s of %d x %zu on %s, ranks %d, prescale %g, postscale %g",
                shm::dtypeName(spec.dtype), shm::reduceOpName(spec.op), inputCount, count,
                shm::isaName(isa), spec.ranks, spec.prescale, spec.postscale);
  return text;
}

// Bytes in the order of memory.
inline std::string hexOf(const char* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<uint8_t>(bytes[i]));
    text += digits;
  }
  return text;
}

// "" or what is wrong with the outputs.
inline std::string compare(Arrays& arrays, int number, const std::vector<char>& expected,
                           size_t count, const shm::ReduceSpec& spec) {
  const size_t bytes = shm::dtypeSize(spec.dtype);
  for (int m = 0; m < number; ++m) {
    for (size_t i = 0; i < count; ++i) {
      if (std::memcmp(arrays.at(m) + i * bytes, expected.data() + i * bytes, bytes) == 0) continue;
      return ": output " + std::to_string(m) + " element " + std::to_string(i) + " is " +
             hexOf(arrays.at(m) + i * bytes, bytes) + ", not " +
             hexOf(expected.data() + i * bytes, bytes);
    }
  }
  return arrays.guardsIntact() ? "" : ": wrote outside of an array";
}

// Runs in place and out of place. Returns "" or the first difference from `expected`, whose first
// `count` elements count.
inline std::string checkReduce(const shm::ReduceSpec& spec, const Inputs& inputs, int inputCount,
                               size_t count, shm::Isa isa, const std::vector<char>& expected) {
  const size_t bytes = count * shm::dtypeSize(spec.dtype);
  Arrays inPlace(inputCount, bytes);
  for (int k = 0; k < inputCount && bytes > 0; ++k) {
    std::memcpy(inPlace.at(k), inputs[k].data(), bytes);
  }
  const std::vector<void*> both = inPlace.all();
  shm::reduce(spec, both.data(), inputCount, both.data(), inputCount, count, isa);
  std::string wrong = compare(inPlace, inputCount, expected, count, spec);
  if (!wrong.empty()) return describe(spec, inputCount, count, isa) + " in place" + wrong;

  Arrays outputs(2, bytes);
  const std::vector<const void*> from = addresses(inputs, inputCount);
  const std::vector<void*> to = outputs.all();
  shm::reduce(spec, from.data(), inputCount, to.data(), 2, count, isa);
  wrong = compare(outputs, 2, expected, count, spec);
  if (!wrong.empty()) return describe(spec, inputCount, count, isa) + wrong;
  return "";
}

// The result for one element from each of the inputs, on every instruction set the same.
template <typename T>
T reduceOne(shm::ReduceSpec spec, const std::vector<T>& values) {
  std::vector<const void*> inputs;
  for (const T& value : values) inputs.push_back(&value);
  T result{};
  void* output = &result;
  const int k = static_cast<int>(values.size());
  shm::reduce(spec, inputs.data(), k, &output, 1, 1);
  for (const shm::Isa isa : isas()) {
    T other{};
    output = &other;
    shm::reduce(spec, inputs.data(), k, &output, 1, 1, isa);
    CHECK(std::memcmp(&other, &result, sizeof(T)) == 0);
  }
  return result;
}

}  // namespace rueda::kit
