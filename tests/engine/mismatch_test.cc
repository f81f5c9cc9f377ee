// SPDX-License-Identifier: Apache-2.0

// Ranks that disagree under one name: each of them gets the reason, and the job goes on.

#include <catch2/catch.hpp>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::DaemonFixture;
using rueda::kit::problem;
using rueda::shm::Code;
using rueda::shm::DType;
using rueda::shm::OpKind;
using rueda::shm::ReduceOp;
using rueda::shm::Status;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kCount = 32;  // More than fits into a flag's line.

struct Variant {
  const char* what;
  std::function<void(Operation*, std::vector<int64_t>*)> spoil;  // For rank 1 alone.
  const char* text;
};

const std::vector<Variant>& variants() {
  static const std::vector<Variant> kVariants = {
      {"dtype", [](Operation* op, auto*) { op->dtype = DType::kInt32; },
       "Mismatched data types for 'x': rank 0 has float32, but rank 1 has int32"},
      {"kind", [](Operation* op, auto*) { op->kind = OpKind::kBroadcast; },
       "Mismatched operations for 'x': rank 0 has allreduce, but rank 1 has broadcast"},
      {"shape",
       [](Operation*, auto* shape) {
         *shape = {4, 8};
       },
       "Mismatched ALLREDUCE tensor shapes for 'x': rank 0 has [32], but rank 1 has [4, 8]"},
      {"size", [](Operation*, auto* shape) { *shape = {31}; },
       "Mismatched ALLREDUCE tensor shapes for 'x': rank 0 has [32], but rank 1 has [31]"},
      {"prescale", [](Operation* op, auto*) { op->prescale = 0.5; },
       "Mismatched prescale and/or postscale factors for 'x': rank 0 has prescale 1 and postscale "
       "1,"
       " but rank 1 has prescale 0.5 and postscale 1"},
      {"op", [](Operation* op, auto*) { op->reduceOp = ReduceOp::kMax; },
       "Mismatched reduction operation for 'x': rank 0 has sum, but rank 1 has max"},
  };
  return kVariants;
}

// Blocking, or submitted and waited for.
Status runEither(Client& client, bool isBlocking, const Operation& op) {
  if (isBlocking) return client.run(op);
  std::vector<uint64_t> handles;
  const Status submitted = client.submit({op}, &handles);
  return submitted.isOk() ? client.wait(handles[0], milliseconds(0)) : submitted;
}

// After a mismatch: the same name must work again.
std::string goesOn(Client& client, const char* name, float* data) {
  const std::vector<int64_t> shape = {int64_t{kCount}};
  std::fill(data, data + kCount, 1.0f);
  const Status status = client.run(rueda::kit::allreduce(name, shape, data, data));
  if (!status.isOk()) return problem("afterwards", status);
  return data[0] == static_cast<float>(client.size()) ? "" : "wrong result afterwards";
}

}  // namespace

TEST_CASE("every kind of disagreement is an error on all ranks within a second") {
  DaemonFixture daemon;
  const bool isBlocking = GENERATE(true, false);
  const bool isOwn = GENERATE(true, false);
  const auto body = [&](Client& client, int rank) -> std::string {
    std::vector<float> foreign(kCount, 1.0f);
    float* data = foreign.data();
    if (isOwn) data = reinterpret_cast<float*>(client.memory().allocate(kCount * 4).value());
    for (const Variant& variant : variants()) {
      std::vector<int64_t> shape = {int64_t{kCount}};
      auto op = rueda::kit::allreduce("x", shape, data, data);
      if (rank == 1) variant.spoil(&op, &shape);
      op.shape = shape.data();
      op.ndim = static_cast<uint32_t>(shape.size());
      op.count = shape.size() == 2 ? kCount : static_cast<uint64_t>(shape[0]);
      const auto begin = steady_clock::now();
      const Status status = runEither(client, isBlocking, op);
      if (status.code() != Code::kMismatch || status.message() != variant.text)
        return std::string(variant.what) + " gave " + status.toString();
      // The bound is a second; 5 here, for a machine under load.
      if (steady_clock::now() - begin > std::chrono::seconds(5)) return "took too long";
      const std::string after = goesOn(client, "x", data);
      if (!after.empty()) return variant.what + (": " + after);
    }
    return "";
  };
  CHECK(rueda::kit::runRanks(daemon, 3, body) == "");
}

TEST_CASE("broadcasts with different roots are refused on all ranks") {
  DaemonFixture daemon;
  const bool isBlocking = GENERATE(true, false);
  const auto body = [&](Client& client, int rank) -> std::string {
    std::vector<float> data(kCount, 1.0f);
    const std::vector<int64_t> shape = {int64_t{kCount}};
    const Status status =
        runEither(client, isBlocking, rueda::kit::broadcast("x", shape, data.data(), rank));
    if (status.message() !=
        "Mismatched BROADCAST root ranks for 'x': rank 0 has root 0, but rank 1 has root 1")
      return status.toString();
    return goesOn(client, "x", data.data());
  };
  CHECK(rueda::kit::runRanks(daemon, 2, body) == "");
}

TEST_CASE("gathers may differ in rows, not in what a row is") {
  DaemonFixture daemon;
  const auto body = [&](Client& client, int rank) -> std::string {
    std::vector<float> data(kCount, 1.0f);
    const std::vector<int64_t> shape = {2, rank + 1};
    std::vector<uint64_t> handles;
    (void)client.submit({rueda::kit::allgather("x", shape, data.data())}, &handles);
    const Status status = client.wait(handles[0], milliseconds(0));
    if (status.message() !=
        "Mismatched ALLGATHER tensor shapes for 'x': rank 0 has [*, 1], but rank 1 has [*, 2]")
      return status.toString();
    return goesOn(client, "x", data.data());
  };
  CHECK(rueda::kit::runRanks(daemon, 2, body) == "");
}

TEST_CASE("a barrier that meets an allreduce of its name is told so") {
  // Once it was said to have a data type of no name.
  DaemonFixture daemon;
  const auto body = [&](Client& client, int rank) -> std::string {
    std::vector<float> data(kCount, 1.0f);
    const std::vector<int64_t> shape = {int64_t{kCount}};
    const Status status =
        client.run(rank == 0 ? rueda::kit::barrier("x")
                             : rueda::kit::allreduce("x", shape, data.data(), data.data()));
    if (status.message() !=
        "Mismatched operations for 'x': rank 0 has barrier, but rank 1 has allreduce")
      return status.toString();
    return goesOn(client, "x", data.data());
  };
  CHECK(rueda::kit::runRanks(daemon, 2, body) == "");
}

TEST_CASE("inline operations that disagree are refused too") {
  DaemonFixture daemon;
  const auto body = [&](Client& client, int rank) -> std::string {
    float data[kCount] = {};
    const std::vector<int64_t> shape = {rank + 1};
    const Status status = client.run(rueda::kit::allreduce("x", shape, data, data));
    if (status.code() != Code::kMismatch) return status.toString();
    return goesOn(client, "x", data);
  };
  CHECK(rueda::kit::runRanks(daemon, 2, body) == "");
}

TEST_CASE("a name in flight is refused in its process only, and is free afterwards") {
  DaemonFixture daemon;
  std::atomic<bool> mayGo{false};
  const auto body = [&](Client& client, int rank) -> std::string {
    std::vector<float> data(kCount, 1.0f);
    const std::vector<int64_t> shape = {int64_t{kCount}};
    const auto op = rueda::kit::allreduce("x", shape, data.data(), data.data());
    while (rank == 1 && !mayGo.load()) std::this_thread::yield();
    std::vector<uint64_t> first;
    (void)client.submit({op}, &first);
    if (rank == 0) {
      std::vector<uint64_t> second;
      const Status again = client.submit({op}, &second);
      const Status blocking = client.run(op);
      mayGo.store(true);
      for (const Status& status : {again, blocking})
        if (status.code() != Code::kAlreadyExists) return "again: " + status.toString();
    }
    const Status ended = client.wait(first[0], milliseconds(0));
    if (!ended.isOk()) return ended.toString();
    return goesOn(client, "x", data.data());
  };
  CHECK(rueda::kit::runRanks(daemon, 2, body) == "");
}

TEST_CASE("scalars have no rows to deal out, which all ranks hear, and the session goes on") {
  DaemonFixture daemon;
  const auto kind = GENERATE(rueda::shm::OpKind::kAllgather, rueda::shm::OpKind::kAlltoall,
                             rueda::shm::OpKind::kReducescatter);
  const bool isMixed = GENERATE(false, true);  // One rank has rows.
  const auto body = [&](Client& client, int rank) -> std::string {
    const std::vector<int64_t> shape(isMixed && rank == 1 ? 1 : 0, 2);
    const float input[2] = {};
    float output[2] = {};
    Operation op = rueda::kit::shaped(kind, "x", shape);
    op.input = input;
    if (kind == rueda::shm::OpKind::kReducescatter) op.output = output;
    std::vector<uint64_t> handles;
    Status status = client.submit({op}, &handles);
    if (status.isOk()) status = client.wait(handles[0], std::chrono::milliseconds(0));
    if (status.code() != Code::kMismatch) return status.toString();
    const std::string text =
        isMixed ? "tensor shapes for 'x': rank 0 has []" : "a rank-zero tensor";
    if (status.message().find(text) == std::string::npos) return status.message();
    float own[kCount] = {};
    return goesOn(client, "x", own);
  };
  CHECK(rueda::kit::runRanks(daemon, 2, body) == "");
}

TEST_CASE("arguments that only this rank got wrong are refused before anything is submitted") {
  DaemonFixture daemon;
  float data[kCount + 1] = {};
  const std::vector<int64_t> shape = {int64_t{kCount}};
  const std::string longName(rueda::shm::kMaxNameBytes + 1, 'n');
  auto huge = rueda::kit::allreduce("x", shape, data, data);
  huge.count = rueda::shm::kMaxElements + 1;
  const std::vector<Operation> wrong = {
      rueda::kit::allreduce(longName, shape, data, data),
      rueda::kit::allreduce("x", shape, nullptr, data),
      rueda::kit::allreduce("x", shape, data, nullptr),
      rueda::kit::allreduce("x", shape, data, data + 1),  // Overlaps partly.
      rueda::kit::broadcast("x", shape, data, 2),
      rueda::kit::broadcast("x", shape, data, -1),
      rueda::kit::broadcast("x", shape, nullptr, 0),
      rueda::kit::allgather("x", shape, nullptr),
      huge,
  };
  const auto body = [&](Client& client, int) -> std::string {
    for (size_t i = 0; i < wrong.size(); ++i) {
      std::vector<uint64_t> handles;
      for (const Status& status : {client.run(wrong[i]), client.submit({wrong[i]}, &handles)})
        if (status.code() != Code::kInvalidArgument)
          return "case " + std::to_string(i) + ": " + status.toString();
    }
    float own[kCount] = {};
    return goesOn(client, "x", own);
  };
  CHECK(rueda::kit::runRanks(daemon, 2, body) == "");
}
