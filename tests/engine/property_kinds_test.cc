// SPDX-License-Identifier: Apache-2.0

// As property_test.cc, for every kind of operation, of every data type, in process sets: the bytes
// that a rank gets do not depend on who comes first, on the path, on fusion or on priorities.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <random>

#include "daemon/execute/cpu/adasum.h"
#include "shm/rows.h"
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
using rueda::shm::OpKind;
using rueda::shm::ReduceOp;
using rueda::shm::ReduceSpec;
using rueda::shm::Status;
using Random = std::mt19937_64;

constexpr int64_t kColumns = 3;

// One operation of a step among some ranks: by place in the set, what each gives and shall get.
struct Task {
  std::string name;
  size_t set = 0;  // Of Job::sets.
  OpKind kind = OpKind::kAllreduce;
  ReduceSpec spec;
  int root = 0;  // Place.
  std::vector<std::vector<int64_t>> shapes;
  std::vector<std::vector<int64_t>> splits;
  std::vector<Bytes> inputs;
  std::vector<Bytes> expected;
};

struct Job {
  int ranks = 1;
  std::vector<std::vector<int64_t>> sets;  // The first holds all.
  std::vector<std::vector<Task>> steps;
};

Bytes adasumOf(const ReduceSpec& spec, std::vector<Bytes> inputs, uint64_t count) {
  if (count == 0) return {};
  rueda::flow::Slice slice;
  slice.count = count;
  for (Bytes& input : inputs) {
    slice.inputs.push_back(input.data());
    slice.outputs.push_back(input.data());
  }
  auto op = std::make_shared<rueda::flow::FusedOp>();
  op->reduce = spec;
  op->slices = {slice};
  rueda::execute::Adasum run(op);
  for (size_t phase = 0; phase < run.phases(); ++phase)
    for (size_t piece = 0; piece < run.pieces(); ++piece) run.runPiece(phase, piece);
  return inputs.front();
}

void expectSum(Task* task, uint64_t rows) {
  const size_t size = task->inputs.size();
  const Bytes sum = task->spec.op == ReduceOp::kAdasum
                        ? adasumOf(task->spec, task->inputs, rows * kColumns)
                        : rueda::kit::expectedReduction(task->spec, task->inputs);
  const uint64_t rowBytes = kColumns * rueda::shm::dtypeSize(task->spec.dtype);
  for (size_t place = 0; place < size; ++place) {
    rueda::shm::RowRange part = {0, rows};
    if (task->kind == OpKind::kReducescatter)
      part = rueda::shm::scatteredRows(rows, static_cast<int>(size), static_cast<int>(place));
    const auto begin = sum.begin() + static_cast<ptrdiff_t>(part.begin * rowBytes);
    task->expected.emplace_back(begin, begin + static_cast<ptrdiff_t>(part.count * rowBytes));
  }
}

// What each place gets of each giver's rows, one behind the other.
void expectRows(Task* task) {
  const uint64_t rowBytes = kColumns * rueda::shm::dtypeSize(task->spec.dtype);
  task->expected.resize(task->inputs.size());
  for (size_t giver = 0; giver < task->inputs.size(); ++giver) {
    auto at = task->inputs[giver].begin();
    for (size_t place = 0; place < task->inputs.size(); ++place) {
      Bytes& to = task->expected[place];
      if (task->kind == OpKind::kAllgather) {
        to.insert(to.end(), task->inputs[giver].begin(), task->inputs[giver].end());
        continue;
      }
      const auto end =
          at + static_cast<ptrdiff_t>(static_cast<uint64_t>(task->splits[giver][place]) * rowBytes);
      to.insert(to.end(), at, end);
      at = end;
    }
  }
}

Task randomTask(Random& random, const Job& job, const std::string& name) {
  constexpr OpKind kKinds[] = {OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast,
                               OpKind::kAlltoall, OpKind::kReducescatter};
  Task task;
  task.name = name;
  task.set = random() % job.sets.size();
  const size_t size = job.sets[task.set].size();
  task.kind = kKinds[random() % std::size(kKinds)];
  task.spec.dtype = rueda::kit::kDTypes[random() % std::size(rueda::kit::kDTypes)];
  const auto ops = rueda::kit::opsOf(task.spec.dtype);
  if (rueda::shm::reduces(task.kind)) task.spec.op = ops[random() % ops.size()];
  const bool mayAdasum =
      rueda::shm::canReduce(OpKind::kAllreduce, task.spec.dtype, ReduceOp::kAdasum);
  if (task.kind == OpKind::kAllreduce && mayAdasum && random() % 3 == 0)
    task.spec.op = ReduceOp::kAdasum;
  task.spec.ranks = static_cast<int>(size);
  task.root = static_cast<int>(random() % size);
  const uint64_t equal = random() % (uint64_t{1} << random() % 14);
  for (size_t place = 0; place < size; ++place) {
    const bool isFree = rueda::shm::gathers(task.kind);
    const uint64_t rows = isFree ? random() % (uint64_t{1} << random() % 13) : equal;
    task.shapes.push_back({static_cast<int64_t>(rows), kColumns});
    task.inputs.push_back(rueda::kit::randomTensor(task.spec.dtype, rows * kColumns, random()));
    task.splits.emplace_back();
    for (uint64_t left = rows; task.splits.back().size() < size;) {
      const uint64_t split = random() % (left + 1);
      task.splits.back().push_back(static_cast<int64_t>(split));
      left -= split;
    }
  }
  if (rueda::shm::gathers(task.kind))
    expectRows(&task);
  else if (task.kind == OpKind::kBroadcast)
    task.expected.assign(size, task.inputs[static_cast<size_t>(task.root)]);
  else
    expectSum(&task, equal);
  return task;
}

Job randomJob(Random& random) {
  Job job;
  job.ranks = 2 + static_cast<int>(random() % 4);
  job.sets.emplace_back(static_cast<size_t>(job.ranks));
  std::iota(job.sets[0].begin(), job.sets[0].end(), 0);
  for (int tries = 0; tries < 3; ++tries) {
    std::vector<int64_t> some;
    std::copy_if(job.sets[0].begin(), job.sets[0].end(), std::back_inserter(some),
                 [&random](int64_t) { return random() % 2 == 0; });
    if (!some.empty() && std::find(job.sets.begin(), job.sets.end(), some) == job.sets.end())
      job.sets.push_back(some);
  }
  for (int step = 0; step < 4; ++step) {
    job.steps.emplace_back();
    for (uint64_t i = 0; i <= random() % 8; ++i)
      job.steps.back().push_back(randomTask(random, job, "t" + std::to_string(i)));
  }
  return job;
}

// A rank's memory for one task, in its arena or anywhere; input and result apart, neither empty.
struct Room {
  Room(Client& client, const Bytes& from, uint64_t resultBytes, bool isOwn)
      : owner(isOwn ? &client : nullptr), inputCopy(from), resultCopy(resultBytes + 1) {
    input = inputCopy.data();
    result = resultCopy.data();
    if (!isOwn) return;
    input = client.memory().allocate(from.size()).value();
    result = client.memory().allocate(resultBytes + 1).value();
    if (!from.empty()) std::memcpy(input, from.data(), from.size());
  }
  ~Room() {
    if (owner == nullptr) return;
    (void)owner->memory().free(input);
    (void)owner->memory().free(result);
  }
  Room(const Room&) = delete;

  Client* owner;
  Bytes inputCopy;
  Bytes resultCopy;
  char* input = nullptr;
  char* result = nullptr;
};

Operation operationOf(const Task& task, size_t place, uint32_t set, int root, const Room& room,
                      int priority) {
  Operation op = rueda::kit::shaped(task.kind, task.name, task.shapes[place]);
  op.dtype = task.spec.dtype;
  op.reduceOp = task.spec.op;
  op.input = room.input;
  op.output = room.result;
  op.outputRoom = task.expected[place].size();
  op.root = root;
  op.processSet = set;
  op.priority = priority;
  if (task.kind == OpKind::kAlltoall) {
    op.splits = task.splits[place].data();
    op.splitCount = static_cast<uint32_t>(task.splits[place].size());
  }
  return op;
}

// One rank's part of a step; those that block keep to one order, others shuffle.
std::string runStep(Client& client, const Job& job, const std::vector<uint32_t>& ids,
                    const std::vector<Task>& step, Random random) {
  const bool blocks = random() % 2 == 0;
  std::vector<size_t> order(step.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (!blocks) std::shuffle(order.begin(), order.end(), random);
  std::vector<std::unique_ptr<Room>> rooms(step.size());
  std::vector<size_t> places(step.size());
  std::vector<uint64_t> handles;
  std::vector<uint64_t> gathers;
  for (const size_t i : order) {
    const auto& members = job.sets[step[i].set];
    const auto own = std::find(members.begin(), members.end(), client.rank());
    if (own == members.end()) continue;
    const size_t place = places[i] = static_cast<size_t>(own - members.begin());
    rooms[i] = std::make_unique<Room>(client, step[i].inputs[place], step[i].expected[place].size(),
                                      random() % 2 == 0);
    const int root = static_cast<int>(members[static_cast<size_t>(step[i].root)]);
    const Operation op = operationOf(step[i], place, ids[step[i].set], root, *rooms[i],
                                     static_cast<int>(random() % 3));
    std::vector<uint64_t> one;
    const Status status = blocks ? client.run(op) : client.submit({op}, &one);
    if (!status.isOk()) return step[i].name + ": " + status.toString();
    handles.insert(handles.end(), one.begin(), one.end());
    if (!blocks && rueda::shm::gathers(step[i].kind)) gathers.push_back(one[0]);
  }
  for (const uint64_t handle : handles)
    if (const Status s = client.wait(handle, std::chrono::milliseconds(0)); !s.isOk())
      return s.toString();
  for (const uint64_t handle : gathers)
    if (const Status s = client.release(handle); !s.isOk()) return s.toString();
  for (size_t i = 0; i < step.size(); ++i) {
    if (rooms[i] == nullptr) continue;
    const Bytes& wanted = step[i].expected[places[i]];
    if (!wanted.empty() && std::memcmp(rooms[i]->result, wanted.data(), wanted.size()) != 0)
      return "wrong bytes of " + std::string(rueda::shm::opKindName(step[i].kind)) + " " +
             rueda::shm::reduceOpName(step[i].spec.op) + " " +
             rueda::shm::dtypeName(step[i].spec.dtype);
  }
  return "";
}

}  // namespace

TEST_CASE("every kind gives the same bytes, in every set, however ranks go about it") {
  const uint64_t seed = Catch::rngSeed() + static_cast<uint64_t>(GENERATE(range(0, 30)));
  CAPTURE(seed);
  Random random(seed);
  const Job job = randomJob(random);
  DaemonSetup setup;
  setup.workers = 1 + random() % 3;
  setup.engine.job.fusion.fusionBytes = random() % 3 == 0 ? 0 : uint64_t{1} << (random() % 22);
  setup.engine.job.fusion.lookBack = 1 + random() % 16;
  setup.engine.job.cycle = std::chrono::microseconds(random() % 3 == 0 ? 2000 : 0);
  setup.engine.lobby.isolated = random() % 4 == 0;
  setup.engine.lobby.cores = random() % 2 == 0 ? 64 : 1;
  DaemonFixture daemon(setup);
  const auto body = [&](Client& client, int rank) -> std::string {
    std::vector<uint32_t> ids = {0};
    for (size_t i = 1; i < job.sets.size(); ++i) {
      const auto id = client.addProcessSet(job.sets[i]);
      if (!id.isOk()) return id.status().toString();
      ids.push_back(id.value());
    }
    for (size_t step = 0; step < job.steps.size(); ++step) {
      const std::string wrong = runStep(client, job, ids, job.steps[step],
                                        Random(seed * 64 + static_cast<uint64_t>(rank) + step));
      if (!wrong.empty()) return "step " + std::to_string(step) + ": " + wrong;
    }
    return "";
  };
  CHECK(runRanks(daemon, job.ranks, body) == "");
}
