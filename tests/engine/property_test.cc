// SPDX-License-Identifier: Apache-2.0

// The invariant of the whole: results do not depend on who comes first, on the path, on fusion, on
// chunks or on the number of workers. Random jobs are compared bit for bit with one core.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"
#include "tests/kit/tensors.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::Bytes;
using rueda::kit::DaemonFixture;
using rueda::kit::DaemonSetup;
using rueda::shm::DType;
using rueda::shm::ReduceSpec;
using rueda::shm::Status;

// One tensor of a step: what all ranks agree on, and every rank's bytes.
struct Tensor {
  std::string name;
  ReduceSpec spec;
  std::vector<int64_t> shape;
  std::vector<Bytes> inputs;  // By rank.
  Bytes expected;
};

// How one rank goes about a step: its own business, drawn for each rank.
enum class Manner { kBlocking, kOneByOne, kOneGroup };

// In a step of style 3 ranks that group meet ranks that block; in others they do not.
Manner mannerIn(uint64_t styles, std::mt19937_64& random) {
  if (styles == 0) return random() % 2 == 0 ? Manner::kBlocking : Manner::kOneByOne;
  if (styles < 3) return random() % 2 == 0 ? Manner::kOneGroup : Manner::kOneByOne;
  return static_cast<Manner>(random() % 3);
}

std::vector<Tensor> randomStep(std::mt19937_64& random, int ranks) {
  std::vector<Tensor> tensors(1 + random() % 6);
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor& tensor = tensors[i];
    tensor.name = "t" + std::to_string(i);
    tensor.spec.dtype = rueda::kit::kDTypes[random() % std::size(rueda::kit::kDTypes)];
    const auto ops = rueda::kit::opsOf(tensor.spec.dtype);
    tensor.spec.op = ops[random() % ops.size()];
    tensor.spec.ranks = ranks;
    if (random() % 4 == 0) tensor.spec.prescale = 0.5;
    if (random() % 4 == 0) tensor.spec.postscale = 3;
    // From inside a flag's line to several chunks of several slices.
    const uint64_t count = random() % (uint64_t{1} << (random() % 19));
    tensor.shape = {static_cast<int64_t>(count)};
    for (int rank = 0; rank < ranks; ++rank)
      tensor.inputs.push_back(rueda::kit::randomTensor(tensor.spec.dtype, count, random()));
    tensor.expected = rueda::kit::expectedReduction(tensor.spec, tensor.inputs);
  }
  return tensors;
}

// A rank's copy of a tensor's input, in its arena or anywhere.
class Place {
 public:
  Place(Client& client, const Bytes& input, bool isOwn) : client_(client), foreign_(input.size()) {
    data_ = foreign_.data();
    if (isOwn) block_ = data_ = client.memory().allocate(input.size()).value();
    if (!input.empty()) std::memcpy(data_, input.data(), input.size());
  }
  ~Place() {
    if (block_ != nullptr) (void)client_.memory().free(block_);
  }
  Place(const Place&) = delete;
  char* data() const { return data_; }

 private:
  Client& client_;
  Bytes foreign_;
  char* block_ = nullptr;
  char* data_ = nullptr;
};

Operation operationOf(const Tensor& tensor, char* data) {
  Operation op = rueda::kit::allreduce(tensor.name, tensor.shape, data, data);
  op.dtype = tensor.spec.dtype;
  op.reduceOp = tensor.spec.op;
  op.prescale = tensor.spec.prescale;
  op.postscale = tensor.spec.postscale;
  return op;
}

Status runIn(Client& client, Manner manner, const std::vector<Operation>& ops) {
  Status status;
  std::vector<uint64_t> handles;
  if (manner == Manner::kOneGroup) {
    status = client.submit(ops, &handles);
  } else {
    for (size_t i = 0; i < ops.size() && status.isOk(); ++i) {
      std::vector<uint64_t> one;
      status = manner == Manner::kBlocking ? client.run(ops[i]) : client.submit({ops[i]}, &one);
      handles.insert(handles.end(), one.begin(), one.end());
    }
  }
  for (size_t i = 0; i < handles.size() && status.isOk(); ++i)
    status = client.wait(handles[i], std::chrono::milliseconds(0));
  return status;
}

// One rank's part of a step. Blocking ranks keep to one order, since they would wait for each other
// in circles otherwise; asynchronous ones shuffle.
std::string runStep(Client& client, const std::vector<Tensor>& tensors, Manner manner,
                    std::mt19937_64 random) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (manner != Manner::kBlocking) std::shuffle(order.begin(), order.end(), random);
  std::vector<std::unique_ptr<Place>> places(tensors.size());
  std::vector<Operation> ops;
  for (const size_t i : order) {
    const Bytes& input = tensors[i].inputs[static_cast<size_t>(client.rank())];
    places[i] = std::make_unique<Place>(client, input, random() % 2 == 0);
    ops.push_back(operationOf(tensors[i], places[i]->data()));
  }
  if (const Status status = runIn(client, manner, ops); !status.isOk()) return status.toString();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Bytes& expected = tensors[i].expected;
    if (!expected.empty() && std::memcmp(places[i]->data(), expected.data(), expected.size()) != 0)
      return "wrong bits in a " + std::string(rueda::shm::reduceOpName(tensors[i].spec.op)) +
             " of " + rueda::shm::dtypeName(tensors[i].spec.dtype);
  }
  return "";
}

}  // namespace

TEST_CASE("random jobs get the bits of one core, however they go about it") {
  const uint64_t seed = Catch::rngSeed() + static_cast<uint64_t>(GENERATE(range(0, 24)));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  const int ranks = 1 + static_cast<int>(random() % 6);
  DaemonSetup setup;
  setup.workers = 1 + random() % 3;
  setup.engine.job.fusion.fusionBytes = random() % 3 == 0 ? 0 : uint64_t{1} << (random() % 22);
  setup.engine.lobby.isolated = random() % 4 == 0;
  // Waiters pause on spare cores and yield on shared ones; slices begin at other sizes too.
  setup.engine.lobby.cores = random() % 2 == 0 ? 64 : 1;
  DaemonFixture daemon(setup);
  std::vector<std::vector<Tensor>> steps;
  std::vector<std::vector<Manner>> manners;  // By step and rank.
  for (int step = 0; step < 4; ++step) {
    steps.push_back(randomStep(random, ranks));
    manners.emplace_back();
    // Groups that others take one by one run, but only after a while: not in every step.
    const uint64_t styles = random() % 4;
    for (int rank = 0; rank < ranks; ++rank) manners.back().push_back(mannerIn(styles, random));
  }
  const auto body = [&](Client& client, int rank) -> std::string {
    for (size_t step = 0; step < steps.size(); ++step) {
      const std::string wrong =
          runStep(client, steps[step], manners[step][static_cast<size_t>(rank)],
                  std::mt19937_64(seed + static_cast<uint64_t>(rank)));
      if (!wrong.empty()) return "step " + std::to_string(step) + ": " + wrong;
    }
    return "";
  };
  CHECK(runRanks(daemon, ranks, body) == "");
}
