// SPDX-License-Identifier: Apache-2.0

// Blocking allgather and alltoall between waiting ranks, with memory of every kind.
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/hostile_client.h"
#include "tests/kit/operations.h"
#include "tests/kit/two_ranks.h"

namespace {

using rueda::client::Client;
using rueda::client::Operation;
using rueda::kit::DaemonFixture;
using rueda::kit::HostileClient;
using rueda::kit::problem;
using rueda::kit::runRanks;
using rueda::kit::TwoRanks;
using rueda::shm::Code;
using rueda::shm::Status;

// Where a rank's rows lie, and where it wants the result.
enum class In { kArena, kForeign };
enum class Out { kArena, kForeign, kPlaced };

constexpr int64_t kColumns = 3;

// A value that tells giver, receiver and place apart. Receiver 0 in an allgather.
float valueOf(int giver, int receiver, int64_t i) {
  return static_cast<float>(giver * 1000000 + receiver * 100000 + i % 99991);
}

// One gather of one rank: makes input and room, runs, and says what is wrong.
class Exchange {
 public:
  // `parts`: by giver and receiver; an allgather has one column of them.
  Exchange(Client& client, std::vector<std::vector<int64_t>> parts, In in, Out out)
      : client_(client), parts_(std::move(parts)), isAllgather_(parts_[0].size() == 1), out_(out) {
    int64_t rows = 0;
    for (const int64_t part : own()) rows += part;
    const auto bytes = static_cast<uint64_t>(rows * kColumns) * sizeof(float);
    shape_ = {rows, kColumns};
    input_ = memory(in == In::kArena, bytes);
    float* to = reinterpret_cast<float*>(input_);
    for (size_t receiver = 0; receiver < own().size(); ++receiver)
      for (int64_t i = 0; i < own()[receiver] * kColumns; ++i)
        *to++ = valueOf(client.rank(), static_cast<int>(receiver), i);
    if (out != Out::kPlaced) output_ = memory(out == Out::kArena, expectedBytes());
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange() {
    for (char* block : blocks_) (void)client_.memory().free(block);
  }

  Operation operation(const char* name) {
    Operation op = isAllgather_ ? rueda::kit::allgather(name, shape_, input_)
                                : rueda::kit::alltoall(name, shape_, input_, own());
    op.output = output_;
    op.outputRoom = output_ == nullptr ? 0 : expectedBytes();
    op.result = &result_;
    received_.assign(parts_.size(), -1);
    op.received = received_.data();
    return op;
  }

  std::string run(const char* name) { return verdict(name, client_.run(operation(name))); }

  std::string verdict(const char* name, const Status& status) {
    if (!status.isOk()) return problem(name, status);
    if (out_ == Out::kPlaced && result_ != nullptr) blocks_.push_back(static_cast<char*>(result_));
    const auto* got = static_cast<const float*>(out_ == Out::kPlaced ? result_ : output_);
    for (size_t giver = 0; giver < parts_.size(); ++giver) {
      const int64_t rows = rowsFrom(giver);
      if (received_[giver] != rows) return "rows from rank " + std::to_string(giver);
      for (int64_t i = 0; i < rows * kColumns; ++i)
        if (*got++ != valueOf(static_cast<int>(giver), receiver(), i))
          return std::string(name) + ": element " + std::to_string(i) + " from rank " +
                 std::to_string(giver);
    }
    return "";
  }

  uint64_t expectedBytes() const {
    int64_t rows = 0;
    for (size_t giver = 0; giver < parts_.size(); ++giver) rows += rowsFrom(giver);
    return static_cast<uint64_t>(rows * kColumns) * sizeof(float);
  }

 private:
  const std::vector<int64_t>& own() const { return parts_[static_cast<size_t>(client_.rank())]; }
  int receiver() const { return isAllgather_ ? 0 : client_.rank(); }
  int64_t rowsFrom(size_t giver) const { return parts_[giver][static_cast<size_t>(receiver())]; }
  char* memory(bool isArena, uint64_t bytes) {
    if (isArena) return blocks_.emplace_back(client_.memory().allocate(bytes).value());
    return foreign_.emplace_back(std::make_unique<char[]>(bytes + 1)).get();
  }

  Client& client_;
  const std::vector<std::vector<int64_t>> parts_;
  const bool isAllgather_;
  const Out out_;
  std::vector<int64_t> shape_;
  std::vector<int64_t> received_;
  char* input_ = nullptr;
  char* output_ = nullptr;
  void* result_ = nullptr;
  std::vector<char*> blocks_;
  std::vector<std::unique_ptr<char[]>> foreign_;
};

uint64_t submittedIn(DaemonFixture& daemon) {
  uint64_t submitted = 0;
  const auto job = daemon.state().jobs.at(0);
  for (const auto& rank : job.ranks) submitted += rank.submitted;
  return submitted;
}

Operation gatherOf(const char* name, const std::vector<int64_t>& shape, const float* rows,
                   void** result) {
  Operation op = rueda::kit::allgather(name, shape, rows);
  op.result = result;
  return op;
}

// Runs one operation a rank at once.
std::pair<Status, Status> runBoth(const TwoRanks& ranks, const Operation& first,
                                  const Operation& second) {
  Status other;
  std::thread thread([&] { other = ranks.clients[1]->run(second); });
  const Status own = ranks.clients[0]->run(first);
  thread.join();
  return {own, other};
}

}  // namespace

TEST_CASE("rows go from memory of any kind to memory of any kind, without the daemon") {
  const int ranks = GENERATE(2, 3, 4);
  const int64_t unit = GENERATE(1, 300, 40000);  // Copied, over that, several staged blocks.
  CAPTURE(ranks, unit);
  DaemonFixture daemon;
  uint64_t submitted = 0;
  const auto body = [&](Client& client, int rank) -> std::string {
    for (int round = 0; round < 12; ++round) {
      // What the ranks have differs from rank to rank and from round to round.
      const In in = (round + rank) % 3 == 0 ? In::kForeign : In::kArena;
      const Out out = round < 3 ? Out::kArena : static_cast<Out>((round + 2 * rank) % 3);
      std::vector<std::vector<int64_t>> all;
      std::vector<std::vector<int64_t>> dealt;
      for (int giver = 0; giver < ranks; ++giver) {
        all.push_back({(giver + round) % 3 * unit});
        dealt.emplace_back();
        for (int to = 0; to < ranks; ++to) dealt.back().push_back((giver + to + round) % 3 * unit);
      }
      std::string wrong = Exchange(client, all, in, out).run("gather");
      if (wrong.empty()) wrong = Exchange(client, dealt, in, out).run("deal");
      if (!wrong.empty()) return "round " + std::to_string(round) + " " + wrong;
    }
    if (const Status met = client.run(rueda::kit::barrier("b")); !met.isOk()) return "barrier";
    if (rank == 0) submitted = submittedIn(daemon);
    return client.run(rueda::kit::barrier("c")).isOk() ? "" : "last barrier";
  };
  CHECK(runRanks(daemon, ranks, body) == "");
  CHECK(submitted == 0);
}

TEST_CASE("rows that are for nobody go nowhere, from and to memory of any kind") {
  DaemonFixture daemon;
  const TwoRanks ranks(daemon);
  REQUIRE(ranks.areOpen());
  const bool isPlaced = GENERATE(false, true);
  const std::vector<int64_t> shape = {5000};
  const std::vector<int64_t> splits = {0, 0};
  std::vector<float> rows(5000);
  const auto* const shared = ranks.clients[1]->memory().allocate(20000).value();
  float output = 7;
  void* results[2] = {&output, &output};
  Operation first = rueda::kit::alltoall("x", shape, rows.data(), splits);
  Operation second = rueda::kit::alltoall("x", shape, shared, splits);
  for (Operation* op : {&first, &second}) {
    op->output = isPlaced ? nullptr : &output;
    op->outputRoom = sizeof output;
  }
  first.result = &results[0];
  second.result = &results[1];
  const auto [one, two] = runBoth(ranks, first, second);
  CHECK((one.isOk() && two.isOk()));
  CHECK(output == 7);
  for (const void* result : results) CHECK(result == (isPlaced ? nullptr : &output));
}

TEST_CASE("rows reach an isolated job's ranks through the ring") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    for (const Out out : {Out::kArena, Out::kForeign, Out::kPlaced}) {
      std::string wrong = Exchange(client, {{2}, {5000}}, In::kForeign, out).run("gather");
      if (wrong.empty()) wrong = Exchange(client, {{2, 0}, {1, 3000}}, In::kArena, out).run("deal");
      if (!wrong.empty()) return std::to_string(rank) + " " + wrong;
    }
    return "";
  };
  CHECK(runRanks(daemon, 2, body, [](auto* options) { options->isolated = true; }) == "");
}

TEST_CASE("a job of one rank gathers by itself") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int) -> std::string {
    for (const Out out : {Out::kArena, Out::kForeign, Out::kPlaced}) {
      std::string wrong = Exchange(client, {{4}}, In::kForeign, out).run("gather");
      if (!wrong.empty()) return wrong;
    }
    return "";
  };
  CHECK(runRanks(daemon, 1, body) == "");
}

TEST_CASE("a blocking gather meets one that was submitted") {
  DaemonFixture daemon;
  const auto body = [](Client& client, int rank) -> std::string {
    for (int round = 0; round < 3; ++round) {
      Exchange exchange(client, {{10}, {20}}, In::kArena, Out::kForeign);
      if (rank == 0) {
        if (std::string wrong = exchange.run("x"); !wrong.empty()) return wrong;
        continue;
      }
      Operation op = exchange.operation("x");
      std::vector<uint64_t> handles;
      if (const Status begun = client.submit({op}, &handles); !begun.isOk())
        return problem("submit", begun);
      const Status ended = client.wait(handles[0], rueda::kit::kPatience);
      if (!ended.isOk()) return problem("wait", ended);
      const auto* gathered = client.gathered(handles[0]);
      std::copy(gathered->firstDims.begin(), gathered->firstDims.end(), op.received);
      if (gathered->data != op.output) return "the rows lie elsewhere";
      if (std::string wrong = exchange.verdict("x", ended); !wrong.empty()) return wrong;
      if (!client.release(handles[0]).isOk()) return "release";
    }
    return "";
  };
  CHECK(runRanks(daemon, 2, body) == "");
}

TEST_CASE("a gather that ranks disagree on fails on all, and the next one is direct again") {
  DaemonFixture daemon;
  const TwoRanks ranks(daemon);
  REQUIRE(ranks.areOpen());
  const std::vector<int64_t> shape = {2, 3};
  const std::vector<int64_t> other = {2, 2};
  const float rows[6] = {1, 2, 3, 4, 5, 6};
  void* results[2] = {};
  const Operation first = gatherOf("x", shape, rows, &results[0]);
  Operation second = gatherOf("x", shape, rows, &results[1]);
  SECTION("dtype") { second.dtype = rueda::shm::DType::kInt32; }
  SECTION("all dimensions but the first") { second.shape = other.data(), second.count = 4; }
  SECTION("kind") { second.kind = rueda::shm::OpKind::kAlltoall; }
  const auto [one, two] = runBoth(ranks, first, second);
  CHECK(one.code() == Code::kMismatch);
  CHECK(two.code() == Code::kMismatch);
  const uint64_t before = submittedIn(daemon);
  second = gatherOf("x", shape, rows, &results[1]);
  const auto [again, alike] = runBoth(ranks, first, second);
  CHECK((again.isOk() && alike.isOk()));
  CHECK(std::memcmp(static_cast<float*>(results[0]) + 6, rows, sizeof rows) == 0);
  CHECK(std::memcmp(results[1], rows, sizeof rows) == 0);
  CHECK(submittedIn(daemon) == before);
}

TEST_CASE("a rank without enough room is told so, and the others get their rows") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  const TwoRanks ranks(daemon, isIsolated);
  REQUIRE(ranks.areOpen());
  const int64_t count = GENERATE(4, 4000);
  const bool isArena = GENERATE(false, true);
  const std::vector<int64_t> shape = {count};
  const auto bytes = static_cast<uint64_t>(count) * sizeof(float);
  std::vector<float> rows(static_cast<size_t>(count), 3);
  std::vector<float> foreign(static_cast<size_t>(2 * count), 9);
  void* result = nullptr;
  Operation first = rueda::kit::allgather("x", shape, rows.data());
  first.output = isArena
                     ? static_cast<void*>(ranks.clients[0]->memory().allocate(2 * bytes).value())
                     : foreign.data();
  first.outputRoom = 2 * bytes - 1;
  std::memset(first.output, 1, 2 * bytes);
  const auto [one, two] = runBoth(ranks, first, gatherOf("x", shape, rows.data(), &result));
  CHECK(one.toString() == "invalid argument: allgather 'x': the rows of all ranks are " +
                              std::to_string(2 * bytes) + " bytes, the output has room for " +
                              std::to_string(2 * bytes - 1));
  CHECK(two.toString() == "ok");
  CHECK(static_cast<char*>(first.output)[2 * bytes - 1] == 1);
  CHECK(static_cast<float*>(result)[2 * count - 1] == 3);
}

TEST_CASE("a gather without a place for its rows, or one over its input, is refused") {
  DaemonFixture daemon;
  const TwoRanks ranks(daemon);
  REQUIRE(ranks.areOpen());
  const std::vector<int64_t> shape = {2};
  float rows[4] = {};
  Operation op = rueda::kit::allgather("x", shape, rows);
  CHECK(ranks.clients[0]->run(op).code() == Code::kInvalidArgument);
  op.output = rows + 1;
  op.outputRoom = 16;
  CHECK(ranks.clients[0]->run(op).code() == Code::kInvalidArgument);
}

namespace {

// Rank 0 is a real client that runs an allgather; rank 1 posts `rows` of its own.
struct Hostile {
  explicit Hostile(DaemonFixture& daemon) : slow(daemon.socket()) {
    if (!slow.join(1, 2)) return;
    auto opened = Client::open(daemon.options(0, 2));
    if (!opened.isOk() || !slow.awaitJob()) return;
    client = std::move(opened).value();
    segment = slow.allocate(1 << 20);
    auto ready =
        rueda::shm::makeMessage<rueda::shm::SegmentMessage>(rueda::shm::MessageType::kSegmentReady);
    ready.segment = segment;
    isReady = segment != 0 && slow.send(ready).isOk();
  }
  void post(const Operation& op, const rueda::shm::RowPayload& rows) {
    auto& line = slow.board()->posts[1][1];
    line.rows = rows;
    line.word.store(rueda::shm::tagged(1, rueda::client::signatureOf(op)),
                    std::memory_order_seq_cst);
  }
  rueda::shm::RowPayload payload() const {
    rueda::shm::RowPayload rows{};
    rows.rows = 20000;
    rows.from = rueda::shm::RowsFrom::kSegment;
    rows.to = rueda::shm::RowsTo::kSegment;
    rows.inSegment = rows.outSegment = segment;
    rows.outRoom = 1 << 20;
    return rows;
  }

  HostileClient slow;
  std::unique_ptr<Client> client;
  uint32_t segment = 0;
  bool isReady = false;
};

}  // namespace

TEST_CASE("rows that a peer posted as they cannot be end the session, not the process") {
  DaemonFixture daemon;
  Hostile hostile(daemon);
  REQUIRE(hostile.isReady);
  const std::vector<int64_t> shape = {5000};
  const auto* const rows = hostile.client->memory().allocate(20000).value();
  std::vector<float> output(100000);
  Operation op = rueda::kit::allgather("x", shape, rows);
  op.output = output.data();
  op.outputRoom = output.size() * sizeof(float);
  rueda::shm::RowPayload payload = hostile.payload();
  SECTION("more than there can be") { payload.rows = ~uint64_t{0}; }
  SECTION("more than a copy slot holds") { payload.from = rueda::shm::RowsFrom::kCopySlot; }
  SECTION("from outside its memory") { payload.inOffset = (1 << 20) - 79999; }
  SECTION("to outside its memory") { payload.outOffset = ~uint64_t{0} - 16; }
  SECTION("from where no rank has any") { payload.from = static_cast<rueda::shm::RowsFrom>(9); }
  SECTION("splits of more") {
    op.kind = rueda::shm::OpKind::kAlltoall;
    payload.hasSplits = 1;
    hostile.slow.board()->copies[1][1].splits[0] = 20001;
  }
  hostile.post(op, payload);
  CHECK(hostile.client->run(op).code() == Code::kInternal);
}

TEST_CASE("a rank that dies while rows are copied is lost, and the others live") {
  DaemonFixture daemon;
  Hostile hostile(daemon);
  REQUIRE(hostile.isReady);
  const std::vector<int64_t> shape = {5000};
  std::vector<float> rows(5000);
  void* result = nullptr;
  const Operation op = gatherOf("x", shape, rows.data(), &result);
  rueda::shm::RowPayload payload = hostile.payload();
  SECTION("with its place known") {}
  SECTION("before it has said where it wants them") { payload.to = rueda::shm::RowsTo::kLater; }
  hostile.post(op, payload);
  Status status;
  std::thread thread([&] { status = hostile.client->run(op); });
  REQUIRE(daemon.eventually([](const rueda::flow::StateView& view) {
    return view.jobs.size() == 1 && view.jobs[0].pending.size() == 1;
  }));
  hostile.slow.close();
  thread.join();
  CHECK(status.code() == Code::kRankLost);
  CHECK(result == nullptr);
}
