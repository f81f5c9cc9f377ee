// SPDX-License-Identifier: Apache-2.0

// Every kind of operation on every path through client and daemon together.

#include <catch2/catch.hpp>
#include <cstring>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"
#include "tests/kit/tensors.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::Bytes;
using rueda::kit::DaemonFixture;
using rueda::kit::problem;
using rueda::kit::runRanks;
using rueda::shm::DType;
using rueda::shm::ReduceOp;
using rueda::shm::Status;

// How an operation gets to its peers and where its memory lies.
enum class Path { kDirect, kDirectStaged, kRing, kRingForeign, kIsolated };
constexpr Path kPaths[] = {Path::kDirect, Path::kDirectStaged, Path::kRing, Path::kRingForeign,
                           Path::kIsolated};

bool isForeign(Path path) { return path == Path::kDirectStaged || path == Path::kRingForeign; }
bool isRing(Path path) { return path == Path::kRing || path == Path::kRingForeign; }

// Runs `op` on a path: submitted and waited for, or blocking.
Status runOn(Client& client, Path path, const Operation& op) {
  if (!isRing(path)) return client.run(op);
  std::vector<uint64_t> handles;
  const Status submitted = client.submit({op}, &handles);
  return submitted.isOk() ? client.wait(handles[0], std::chrono::milliseconds(0)) : submitted;
}

// A rank's tensor, in memory of the kind that the path needs.
struct Tensor {
  Tensor(Client& client, Path path, const Bytes& content) : bytes(content.size()) {
    foreign.resize(bytes);
    auto block = isForeign(path) ? rueda::shm::Result<char*>(foreign.data())
                                 : client.memory().allocate(bytes);
    data = block.isOk() ? block.value() : nullptr;
    if (data != nullptr && bytes > 0) std::memcpy(data, content.data(), bytes);
  }
  bool equals(const Bytes& other) const {
    return other.size() == bytes && (bytes == 0 || std::memcmp(data, other.data(), bytes) == 0);
  }
  uint64_t bytes;
  Bytes foreign;
  char* data = nullptr;
};

void isolate(rueda::client::Options* options) { options->isolated = true; }

std::vector<Bytes> inputsOf(int ranks, DType dtype, uint64_t count, uint64_t seed) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < ranks; ++rank)
    inputs.push_back(rueda::kit::randomTensor(dtype, count, seed + static_cast<uint64_t>(rank)));
  return inputs;
}

// In place, by one rank of all; "" when it got exactly the reduction of one core.
std::string allreduceOn(Client& client, Path path, const rueda::shm::ReduceSpec& spec,
                        uint64_t count) {
  const auto inputs = inputsOf(client.size(), spec.dtype, count, count + 1);
  const std::vector<int64_t> shape = {static_cast<int64_t>(count)};
  Tensor tensor(client, path, inputs[static_cast<size_t>(client.rank())]);
  auto op = rueda::kit::allreduce("x", shape, tensor.data, tensor.data);
  op.dtype = spec.dtype;
  op.reduceOp = spec.op;
  op.prescale = spec.prescale;
  op.postscale = spec.postscale;
  const Status status = runOn(client, path, op);
  if (status.isOk() && tensor.equals(rueda::kit::expectedReduction(spec, inputs))) return "";
  return std::string(rueda::shm::reduceOpName(spec.op)) + " of " + std::to_string(count) + " " +
         rueda::shm::dtypeName(spec.dtype) + ": " + status.toString() + "; ";
}

const auto isolatesOn = [](Path path) { return path == Path::kIsolated ? isolate : nullptr; };

}  // namespace

TEST_CASE("allreduce sums every count on every path, bit for bit") {
  DaemonFixture daemon;
  const Path path = GENERATE(from_range(std::begin(kPaths), std::end(kPaths)));
  CAPTURE(static_cast<int>(path));
  const auto body = [&](Client& client, int) {
    std::string wrong;
    // Nothing, inline in the flag's line (up to 14 floats), one slice, several slices and chunks.
    for (const uint64_t count : {0u, 1u, 14u, 15u, 1000u, 65537u, 1u << 20})
      wrong += allreduceOn(client, path, {DType::kFloat32, ReduceOp::kSum, 2}, count);
    return wrong;
  };
  CHECK(runRanks(daemon, 2, body, isolatesOn(path)) == "");
}

TEST_CASE("allreduce knows every data type and operation") {
  DaemonFixture daemon;
  const Path path = GENERATE(Path::kDirect, Path::kDirectStaged, Path::kIsolated);
  CAPTURE(static_cast<int>(path));
  const auto body = [&](Client& client, int) {
    std::string wrong;
    for (const DType dtype : rueda::kit::kDTypes)
      for (const ReduceOp op : rueda::kit::opsOf(dtype))
        wrong += allreduceOn(client, path, {dtype, op, 3}, 20);
    return wrong;
  };
  CHECK(runRanks(daemon, 3, body, isolatesOn(path)) == "");
}

TEST_CASE("one to eight ranks get the same sum, with and without scales") {
  DaemonFixture daemon;
  const int ranks = GENERATE(range(1, 9));
  const Path path = GENERATE(Path::kDirect, Path::kRingForeign, Path::kIsolated);
  CAPTURE(ranks, static_cast<int>(path));
  const auto body = [&](Client& client, int) {
    std::string wrong;
    for (const uint64_t count : {3u, 5000u}) {
      wrong += allreduceOn(client, path, {DType::kFloat32, ReduceOp::kAverage, ranks}, count);
      wrong += allreduceOn(client, path, {DType::kFloat32, ReduceOp::kSum, ranks, 0.5, 3}, count);
    }
    return wrong;
  };
  CHECK(runRanks(daemon, ranks, body, isolatesOn(path)) == "");
}

TEST_CASE("a scalar and a tensor of zero elements are operations like others") {
  DaemonFixture daemon;
  const Path path = GENERATE(from_range(std::begin(kPaths), std::end(kPaths)));
  const std::vector<int64_t> shape =
      GENERATE(std::vector<int64_t>{}, std::vector<int64_t>{3, 0, 2});
  const auto body = [&](Client& client, int rank) {
    const float mine = static_cast<float>(rank + 1);
    Tensor tensor(client, path, Bytes(sizeof mine));
    std::memcpy(tensor.data, &mine, sizeof mine);
    const Status status =
        runOn(client, path, rueda::kit::allreduce("x", shape, tensor.data, tensor.data));
    if (!status.isOk()) return problem("allreduce", status);
    float got = 0;
    std::memcpy(&got, tensor.data, sizeof got);
    return std::string(got == (shape.empty() ? 3.0f : mine) ? "" : "wrong result");
  };
  CHECK(runRanks(daemon, 2, body, isolatesOn(path)) == "");
}

TEST_CASE("allreduce into another buffer leaves the input alone") {
  DaemonFixture daemon;
  const Path path = GENERATE(from_range(std::begin(kPaths), std::end(kPaths)));
  const uint64_t count = GENERATE(5, 200000);
  const auto inputs = inputsOf(2, DType::kFloat32, count, 7);
  const auto expected = rueda::kit::expectedReduction({DType::kFloat32, ReduceOp::kSum, 2}, inputs);
  const std::vector<int64_t> shape = {static_cast<int64_t>(count)};
  const auto body = [&](Client& client, int rank) {
    const Bytes& mine = inputs[static_cast<size_t>(rank)];
    Tensor input(client, path, mine);
    Tensor output(client, path, Bytes(mine.size()));
    const Status status =
        runOn(client, path, rueda::kit::allreduce("x", shape, input.data, output.data));
    if (!status.isOk()) return problem("allreduce", status);
    return std::string(output.equals(expected) && input.equals(mine) ? "" : "wrong result");
  };
  CHECK(runRanks(daemon, 2, body, isolatesOn(path)) == "");
}

TEST_CASE("own and foreign memory meet in one operation") {
  DaemonFixture daemon;
  const bool isBlocking = GENERATE(true, false);
  const uint64_t count = GENERATE(15, 400000);
  const auto inputs = inputsOf(3, DType::kFloat32, count, 11);
  const auto expected = rueda::kit::expectedReduction({DType::kFloat32, ReduceOp::kSum, 3}, inputs);
  const std::vector<int64_t> shape = {static_cast<int64_t>(count)};
  const auto body = [&](Client& client, int rank) {
    const Path path = rank == 1 ? Path::kDirectStaged : Path::kDirect;
    Tensor tensor(client, path, inputs[static_cast<size_t>(rank)]);
    const Status status = runOn(client, isBlocking ? path : Path::kRing,
                                rueda::kit::allreduce("x", shape, tensor.data, tensor.data));
    if (!status.isOk()) return problem("allreduce", status);
    return std::string(tensor.equals(expected) ? "" : "wrong result");
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("broadcast brings the root's bytes to all ranks on every path") {
  DaemonFixture daemon;
  const Path path = GENERATE(from_range(std::begin(kPaths), std::end(kPaths)));
  CAPTURE(static_cast<int>(path));
  const auto broadcast = [&](Client& client, uint64_t count, int root) -> std::string {
    const auto inputs = inputsOf(3, DType::kFloat32, count, 3);
    const std::vector<int64_t> shape = {static_cast<int64_t>(count)};
    Tensor tensor(client, path, inputs[static_cast<size_t>(client.rank())]);
    const Status status = runOn(client, path, rueda::kit::broadcast("x", shape, tensor.data, root));
    if (status.isOk() && tensor.equals(inputs[static_cast<size_t>(root)])) return "";
    return std::to_string(count) + " from " + std::to_string(root) + ": " + status.toString() +
           "; ";
  };
  const auto body = [&](Client& client, int) {
    std::string wrong;
    for (const uint64_t count : {0u, 1u, 14u, 15u, 300000u})
      for (const int root : {0, 2}) wrong += broadcast(client, count, root);
    return wrong;
  };
  CHECK(runRanks(daemon, 3, body, isolatesOn(path)) == "");
}

TEST_CASE("nobody passes a barrier before all have come") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  std::atomic<int> arrived{0};
  const auto body = [&](Client& client, int) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      const Status status = client.run(rueda::kit::barrier("b"));
      if (!status.isOk()) return problem("barrier", status);
      if (arrived.load() < round * 4) return std::string("passed too early");
    }
    return std::string();
  };
  CHECK(runRanks(daemon, 4, body, isIsolated ? isolate : nullptr) == "");
}

TEST_CASE("a thousand asynchronous operations end with their own results") {
  DaemonFixture daemon;
  const auto body = [&](Client& client, int rank) {
    constexpr int kCount = 1000;
    std::vector<float> values(kCount);
    std::vector<std::string> names;
    std::vector<Operation> ops;
    const std::vector<int64_t> scalar;
    for (int i = 0; i < kCount; ++i) {
      values[static_cast<size_t>(i)] = static_cast<float>(i * (rank + 1));
      names.push_back("t" + std::to_string(i));
    }
    std::vector<uint64_t> handles;
    for (int n = 0; n < kCount; ++n) {
      // Rank 1 goes backwards.
      const auto i = static_cast<size_t>(rank == 1 ? kCount - 1 - n : n);
      std::vector<uint64_t> one;
      const Status status =
          client.submit({rueda::kit::allreduce(names[i], scalar, &values[i], &values[i])}, &one);
      if (!status.isOk()) return problem("submit", status);
      handles.push_back(one[0]);
    }
    for (const uint64_t handle : handles) {
      const Status status = client.wait(handle, std::chrono::milliseconds(0));
      if (!status.isOk()) return problem("wait", status);
    }
    for (int i = 0; i < kCount; ++i)
      if (values[static_cast<size_t>(i)] != static_cast<float>(i * 3)) return std::string("wrong");
    return std::string();
  };
  CHECK(runRanks(daemon, 2, body) == "");
}
