// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/operation.h"

#include <catch2/catch.hpp>
#include <functional>
#include <set>

#include "tests/kit/operations.h"

namespace {

using rueda::client::Operation;
using rueda::client::signatureOf;
using rueda::shm::DType;
using rueda::shm::OpKind;
using rueda::shm::ReduceOp;

const std::vector<int64_t> kShape = {3, 4};

Operation base(std::string_view name = "layer1.weight") {
  return rueda::kit::allreduce(name, kShape, nullptr, nullptr);
}

}  // namespace

TEST_CASE("equal operations have equal signatures, wherever their memory lies") {
  const std::string copy("layer1.weight");
  int somewhere = 0;
  Operation other = base(copy);
  other.input = other.output = &somewhere;
  CHECK(signatureOf(base()) == signatureOf(other));
}

TEST_CASE("whatever must agree between ranks is in the signature") {
  const std::vector<int64_t> turned = {4, 3};
  const std::vector<int64_t> flat = {12};
  const std::vector<std::function<void(Operation*)>> changes = {
      [](Operation*) {},
      [](Operation* op) { op->kind = OpKind::kBroadcast; },
      [](Operation* op) { op->dtype = DType::kInt32; },
      [](Operation* op) { op->reduceOp = ReduceOp::kMax; },
      [](Operation* op) { op->name = "layer1.weighs"; },
      [](Operation* op) { op->name = "layer1.weight "; },
      [](Operation* op) { op->name = ""; },
      [&](Operation* op) { op->shape = turned.data(); },
      [&](Operation* op) {
        op->shape = flat.data();
        op->ndim = 1;
      },
      [](Operation* op) { op->ndim = 0; },
      [](Operation* op) { op->root = 1; },
      [](Operation* op) { op->prescale = 0.5; },
      [](Operation* op) { op->postscale = 0.5; },
  };
  std::set<uint32_t> signatures;
  for (const auto& change : changes) {
    Operation op = base();
    change(&op);
    signatures.insert(signatureOf(op));
  }
  CHECK(signatures.size() == changes.size());
}

TEST_CASE("many names hardly collide, and no signature is zero") {
  std::set<uint32_t> signatures;
  constexpr int kNames = 20000;
  for (int i = 0; i < kNames; ++i)
    signatures.insert(signatureOf(base("DistributedOptimizer.gradient." + std::to_string(i))));
  CHECK(signatures.count(0) == 0);
  CHECK(signatures.size() >= kNames - 1);  // 0.05 collisions are expected of 32 bits.
}

TEST_CASE("names that end in zeros are told from shorter ones") {
  CHECK(signatureOf(base(std::string_view("a\0", 2))) != signatureOf(base("a")));
  CHECK(signatureOf(base(std::string_view("abcdefgh\0", 9))) != signatureOf(base("abcdefgh")));
}

TEST_CASE("an operation without a name, as it is made, has a signature too") {
  // Once it was made with memcpy from nowhere.
  CHECK(signatureOf(Operation{}) != 0);
}
