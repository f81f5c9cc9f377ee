// SPDX-License-Identifier: Apache-2.0

// Alltoall and reducescatter from end to end: every row goes to the rank it is for, and to no
// other.

#include "shm/rows.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"
#include "tests/kit/tensors.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::Bytes;
using rueda::kit::DaemonFixture;
using rueda::kit::runRanks;
using rueda::shm::Code;
using rueda::shm::DType;
using rueda::shm::OpKind;
using rueda::shm::ReduceOp;
using rueda::shm::Status;
using std::chrono::milliseconds;

using Splits = std::vector<std::vector<int64_t>>;  // By giver, then by receiver.

void isolate(rueda::client::Options* options) { options->isolated = true; }

int32_t valueOf(size_t giver, size_t receiver, int64_t index) {
  return static_cast<int32_t>(giver * 1000000 + receiver * 10000) + static_cast<int32_t>(index);
}

// The values that `giver` has for `receiver`, `width` in a row.
void appendRows(std::vector<int32_t>* values, size_t giver, size_t receiver, int64_t rows,
                int64_t width) {
  for (int64_t i = 0; i < rows * width; ++i) values->push_back(valueOf(giver, receiver, i));
}

Status exchange(Client& client, const Operation& op, uint64_t* handle) {
  std::vector<uint64_t> handles;
  const Status submitted = client.submit({op}, &handles);
  if (!submitted.isOk()) return submitted;
  *handle = handles[0];
  return client.wait(*handle, milliseconds(0));
}

// Exchanges rows as `splits` says, with `kept` rows more that go to nobody; checks what comes.
std::string alltoall(Client& client, const Splits& splits, int64_t width, int64_t kept) {
  const auto self = static_cast<size_t>(client.rank());
  std::vector<int32_t> input, expected;
  std::vector<int64_t> received;
  for (size_t rank = 0; rank < splits.size(); ++rank) {
    appendRows(&input, self, rank, splits[self][rank], width);
    appendRows(&expected, rank, self, splits[rank][self], width);
    received.push_back(splits[rank][self]);
  }
  appendRows(&input, self, 99, kept, width);
  const int64_t rows = std::accumulate(splits[self].begin(), splits[self].end(), kept);
  const std::vector<int64_t> shape = {rows, width};
  Operation op = rueda::kit::shaped(OpKind::kAlltoall, "a", shape);
  op.dtype = DType::kInt32;
  op.input = input.empty() ? nullptr : input.data();
  op.splits = splits[self].data();
  op.splitCount = static_cast<uint32_t>(splits.size());
  uint64_t handle = 0;
  if (const Status status = exchange(client, op, &handle); !status.isOk()) return status.toString();
  const auto* got = client.gathered(handle);
  if (got == nullptr || got->firstDims != received) return "wrong received splits";
  if (got->bytes != expected.size() * 4 ||
      (got->bytes > 0 && std::memcmp(got->data, expected.data(), got->bytes) != 0))
    return "wrong rows";
  return rueda::kit::problem("release", client.release(handle));
}

// Scatters the reduction of `rows` rows of `width`; checks this rank's share, bit for bit.
std::string reducescatter(Client& client, const rueda::shm::ReduceSpec& spec, int64_t rows,
                          int64_t width, bool isForeign, bool isBlocking) {
  const auto count = static_cast<uint64_t>(rows * width);
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < client.size(); ++rank)
    inputs.push_back(rueda::kit::randomTensor(spec.dtype, count, count + uint64_t(rank)));
  const Bytes& mine = inputs[static_cast<size_t>(client.rank())];
  const auto share = rueda::shm::scatteredRows(uint64_t(rows), client.size(), client.rank());
  const uint64_t rowBytes = uint64_t(width) * rueda::shm::dtypeSize(spec.dtype);
  const uint64_t resultBytes = share.count * rowBytes;
  Bytes input = mine;
  Bytes output(resultBytes + 1, 'x');  // One more, which nobody may write.
  char* in = input.data();
  char* out = output.data();
  if (!isForeign) {
    in = client.memory().allocate(mine.size() + 1).value();
    out = client.memory().allocate(resultBytes + 1).value();
    if (!mine.empty()) std::memcpy(in, mine.data(), mine.size());
    out[resultBytes] = 'x';
  }
  const std::vector<int64_t> shape = {rows, width};
  Operation op = rueda::kit::shaped(OpKind::kReducescatter, "r", shape);
  op.dtype = spec.dtype;
  op.reduceOp = spec.op;
  op.prescale = spec.prescale;
  op.postscale = spec.postscale;
  op.input = in;
  op.output = out;
  uint64_t handle = 0;
  const Status status = isBlocking ? client.run(op) : exchange(client, op, &handle);
  if (!status.isOk()) return status.toString();
  const Bytes all = rueda::kit::expectedReduction(spec, inputs);
  const bool isRight =
      resultBytes == 0 || std::memcmp(out, all.data() + share.begin * rowBytes, resultBytes) == 0;
  const bool keptInput = mine.empty() || std::memcmp(in, mine.data(), mine.size()) == 0;
  if (!isRight) return "wrong rows; ";
  if (!keptInput) return "the input has changed; ";
  return out[resultBytes] == 'x' ? "" : "wrote past its rows; ";
}

}  // namespace

TEST_CASE("rows are dealt out in order, and the first ranks get what is over") {
  for (const uint64_t rows : {0u, 1u, 2u, 7u, 64u, 1000u})
    for (const int size : {1, 2, 3, 64}) {
      uint64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const auto range = rueda::shm::scatteredRows(rows, size, rank);
        CHECK(range.begin == next);
        CHECK(range.count == rows / uint64_t(size) + (uint64_t(rank) < rows % uint64_t(size)));
        next += range.count;
      }
      CHECK(next == rows);
    }
}

TEST_CASE("alltoall brings every rank the rows that are for it") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  const Splits splits =
      GENERATE(Splits{{2}}, Splits{{1, 1}, {1, 1}}, Splits{{3, 0}, {5, 2}}, Splits{{0, 0}, {0, 0}},
               Splits{{0, 7}, {0, 0}}, Splits{{1, 2, 3}, {4, 0, 500}, {0, 20000, 9}});
  const auto body = [&](Client& client, int) {
    return alltoall(client, splits, 3, 0) + alltoall(client, splits, 2, 5) +
           alltoall(client, splits, 0, 1);
  };
  CHECK(runRanks(daemon, static_cast<int>(splits.size()), body, isIsolated ? isolate : nullptr) ==
        "");
}

TEST_CASE("an alltoall without splits deals out evenly") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    const std::vector<float> input = {rank + 0.0F, rank + 0.5F, rank + 0.25F};
    const std::vector<int64_t> three = {3};
    Operation op = rueda::kit::shaped(OpKind::kAlltoall, "even", three);
    op.input = input.data();
    uint64_t handle = 0;
    const Status uneven = exchange(client, op, &handle);
    if (client.size() == 2)
      return uneven.message() ==
                     "alltoall 'even': 3 rows cannot be dealt out evenly to 2 ranks; say by splits "
                     "how many each gets"
                 ? ""
                 : uneven.toString();
    const auto* got = client.gathered(handle);
    if (got == nullptr || got->bytes != 12) return uneven.toString();
    for (int giver = 0; giver < 3; ++giver)
      if (reinterpret_cast<const float*>(got->data)[giver] != giver + input[size_t(rank)] - rank)
        return "wrong value";
    return "";
  };
  CHECK(runRanks(daemon, 3, body) == "");
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("a reducescatter gives each rank its rows of the reduction, bit for bit") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  const int size = GENERATE(1, 2, 3, 5);
  CAPTURE(isIsolated, size);
  const auto body = [&](Client& client, int) {
    std::string wrong;
    for (const bool isForeign : {false, true})
      for (const bool isBlocking : {false, true})
        for (const int64_t rows : {0, 1, 2, 7, 1000})
          wrong += reducescatter(client, {DType::kFloat32, ReduceOp::kSum, size}, rows, 3,
                                 isForeign, isBlocking);
    wrong +=
        reducescatter(client, {DType::kFloat32, ReduceOp::kAverage, size}, 70001, 16, true, true);
    return wrong;
  };
  CHECK(runRanks(daemon, size, body, isIsolated ? isolate : nullptr) == "");
}

TEST_CASE("a reducescatter knows every data type, operation and scale") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) {
    std::string wrong;
    for (const DType dtype : rueda::kit::kDTypes)
      for (const ReduceOp op : rueda::kit::kReduceOps)
        if (rueda::shm::canReduce(rueda::shm::OpKind::kAllreduce, dtype, op))
          wrong += reducescatter(client, {dtype, op, 3, 0.5, 3.0}, 20, 2, false, false);
    return wrong;
  };
  CHECK(runRanks(daemon, 3, body) == "");
}

TEST_CASE("what cannot be dealt out is refused before it is submitted") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    std::vector<float> data(8);
    const std::vector<int64_t> four = {4};
    const auto refused = [&](OpKind kind, const std::vector<int64_t>& shape,
                             const std::vector<int64_t>& splits, void* output,
                             const std::string& text) -> std::string {
      Operation op = rueda::kit::shaped(kind, "x", shape);
      op.input = data.data();
      op.output = output;
      op.splits = splits.empty() ? nullptr : splits.data();
      op.splitCount = static_cast<uint32_t>(splits.size());
      uint64_t handle = 0;
      const Status status = exchange(client, op, &handle);
      if (status.code() == Code::kInvalidArgument && status.message() == text) return "";
      return status.toString() + "; ";
    };
    const auto alltoall = OpKind::kAlltoall;
    return refused(alltoall, four, {4}, nullptr, "alltoall 'x': 1 splits for 2 ranks") +
               refused(alltoall, four, {-1, 2}, nullptr,
                       "alltoall 'x': split 0 is -1, but only 4 of the 4 rows are left") +
               refused(alltoall, four, {3, 2}, nullptr,
                       "alltoall 'x': split 1 is 2, but only 1 of the 4 rows are left") +
               refused(OpKind::kReducescatter, four, {}, nullptr,
                       "reducescatter 'x': input or output is NULL") +
               [&]() -> std::string {
      Operation op = rueda::kit::shaped(OpKind::kReducescatter, "x", four);
      op.dtype = DType::kComplex64;
      op.reduceOp = ReduceOp::kMin;
      const std::string text = client.run(op).message();
      return text == "reducescatter 'x': complex64 has no min" ? "" : text;
    }() +
                            refused(OpKind::kReducescatter, four, {}, data.data(),
                                    "reducescatter 'x': input and output overlap") +
                            rueda::kit::problem("barrier", client.run(rueda::kit::barrier("b")));
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("ranks that disagree on rows are told so, and go on") {
  DaemonFixture daemon;
  const OpKind kind = GENERATE(OpKind::kAlltoall, OpKind::kReducescatter);
  const auto body = [&](Client& client, int rank) -> std::string {
    std::vector<float> data(16), output(16);
    const std::vector<int64_t> shape = {2, 2 + rank};
    Operation op = rueda::kit::shaped(kind, "x", shape);
    op.input = data.data();
    op.output = output.data();
    uint64_t handle = 0;
    const Status status = exchange(client, op, &handle);
    const std::string text =
        kind == OpKind::kAlltoall
            ? "Mismatched ALLTOALL tensor shapes for 'x': rank 0 has [*, 2], but rank 1 has [*, 3]"
            : "Mismatched REDUCESCATTER tensor shapes for 'x': rank 0 has [2, 2], but rank 1 has "
              "[2, 3]";
    if (status.code() != Code::kMismatch || status.message() != text) return status.toString();
    return rueda::kit::problem("barrier", client.run(rueda::kit::barrier("b")));
  };
  CHECK(runRanks(daemon, 2, body) == "");
}
