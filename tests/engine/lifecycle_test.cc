// SPDX-License-Identifier: Apache-2.0

// Jobs that begin, end, fail and come again; and the end of the daemon.

#include <catch2/catch.hpp>

#include "tests/kit/daemon_fixture.h"
#include "tests/kit/hostile_client.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::flow::StateView;
using rueda::kit::DaemonFixture;
using rueda::kit::DaemonSetup;
using rueda::kit::HostileClient;
using rueda::kit::runRanks;
using rueda::shm::Code;
using rueda::shm::Status;
using std::chrono::milliseconds;

using Opened = rueda::shm::Result<std::unique_ptr<Client>>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool hasRanks(const StateView& view, size_t jobs, size_t running) {
  size_t found = 0;
  for (const auto& job : view.jobs)
    for (const auto& rank : job.ranks) found += rank.state == "running" ? 1 : 0;
  return view.jobs.size() == jobs && found == running;
}

// Opens all ranks of a job of `size` on threads.
std::vector<std::unique_ptr<Client>> openAll(const DaemonFixture& daemon, int size,
                                             const std::string& job = "job") {
  std::vector<std::unique_ptr<Client>> clients(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      auto client = Client::open(daemon.options(rank, size, job));
      if (client.isOk()) clients[static_cast<size_t>(rank)] = std::move(client).value();
    });
  for (std::thread& thread : threads) thread.join();
  return clients;
}

}  // namespace

TEST_CASE("a daemon without clients has nothing to tell and ends when asked") {
  DaemonFixture daemon;
  const StateView view = daemon.state();
  CHECK(view.jobs.empty());
  CHECK(view.socket == daemon.socket());
  CHECK_FALSE(view.draining);
  daemon.engine().requestStop(std::chrono::seconds(3600));
  CHECK(daemon.awaitEnd());
}

TEST_CASE("the state shows a job while it lives and forgets it afterwards") {
  DaemonFixture daemon;
  {
    const auto clients = openAll(daemon, 2);
    REQUIRE(clients[0] != nullptr);
    REQUIRE(clients[0]->memory().allocate(100).isOk());
    const StateView view = daemon.state();
    REQUIRE(view.jobs.size() == 1);
    CHECK(view.jobs[0].id == "job");
    CHECK(view.jobs[0].size == 2);
    CHECK(view.jobs[0].state == "running");
    CHECK(view.jobs[0].ranks[1].host == "testhost");
    CHECK(view.jobs[0].ranks[1].pid == ::getpid());
    CHECK(view.jobs[0].ranks[0].arenaBytes == 4u << 20);
    CHECK(view.sharedBytes == 4u << 20);
    CHECK(view.sessionsAccepted == 2);
  }
  CHECK(daemon.eventually([](const StateView& view) { return view.jobs.empty(); }));
  CHECK(daemon.state().sharedBytes == 0);
  CHECK(daemon.state().ranksLost == 0);
}

TEST_CASE("a job that has ended begins anew under its id") {
  DaemonFixture daemon;
  for (int generation = 0; generation < 5; ++generation) {
    const auto body = [](Client& client, int) -> std::string {
      float value = 1;
      const std::vector<int64_t> scalar;
      const Status status = client.run(rueda::kit::allreduce("x", scalar, &value, &value));
      return status.isOk() && value == 3 ? "" : status.toString();
    };
    REQUIRE(runRanks(daemon, 3, body) == "");
  }
}

TEST_CASE("jobs with other ids do not notice each other") {
  DaemonFixture daemon;
  std::vector<std::thread> threads;
  std::vector<std::string> texts(6);
  for (int job = 0; job < 6; ++job)
    threads.emplace_back([&, job] {
      const auto body = [&](Client& client, int) -> std::string {
        for (int i = 0; i < 50; ++i) {
          std::vector<float> data(100, static_cast<float>(job));
          const std::vector<int64_t> shape = {100};
          const auto op = rueda::kit::allreduce("x", shape, data.data(), data.data());
          if (const Status status = client.run(op); !status.isOk()) return status.toString();
          if (data[99] != static_cast<float>(2 * job)) return "wrong result";
        }
        return "";
      };
      texts[static_cast<size_t>(job)] = runRanks(
          daemon, 2, body, [job](auto* options) { options->job = "job" + std::to_string(job); });
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) CHECK(text == "");
}

TEST_CASE("a rank that is connected already is refused, and the job goes on") {
  DaemonFixture daemon;
  const auto clients = openAll(daemon, 2);
  REQUIRE(clients[1] != nullptr);
  const Opened second = Client::open(daemon.options(1, 2));
  CHECK(second.status().code() == Code::kAlreadyExists);
  CHECK(contains(second.status().message(), "job 'job': rank 1 (pid "));
  CHECK(contains(second.status().message(), "is connected already"));
  CHECK(clients[1]->health().isOk());
}

TEST_CASE("a rank that was started for another size is refused") {
  DaemonFixture daemon;
  const auto clients = openAll(daemon, 2);
  const Opened other = Client::open(daemon.options(2, 3));
  CHECK(other.status().code() == Code::kMismatch);
  CHECK(other.status().message() == "job 'job' has 2 ranks, rank 2 was started for 3");
}

TEST_CASE("ranks that differ in isolation are refused") {
  DaemonFixture daemon;
  HostileClient first(daemon.socket());
  REQUIRE(first.join(0, 2));
  auto options = daemon.options(1, 2);
  options.isolated = true;
  const Opened second = Client::open(options);
  CHECK(second.status().code() == Code::kMismatch);
  CHECK(contains(second.status().message(),
                 "rank 1 and the others differ in whether memory is isolated"));
}

TEST_CASE("a job that does not fill is given up with the missing ranks named") {
  DaemonFixture daemon;
  auto options = daemon.options(1, 3);
  options.startTimeoutMs = 150;
  const Opened client = Client::open(options);
  CHECK(client.status().code() == Code::kDeadlineExceeded);
  CHECK(client.status().message() ==
        "job 'job': ranks [0, 2] of 3 have not connected within 150 ms");
  CHECK(daemon.eventually([](const StateView& view) { return view.jobs.empty(); }));
}

TEST_CASE("a rank that gives up before the job is complete leaves its place open") {
  DaemonFixture daemon;
  {
    HostileClient first(daemon.socket());
    REQUIRE(first.join(0, 2));
  }
  REQUIRE(daemon.eventually([](const StateView& view) { return hasRanks(view, 0, 0); }));
  CHECK(openAll(daemon, 2)[0] != nullptr);
}

TEST_CASE("a rank that leaves ends its job: pending operations get that, in words") {
  DaemonFixture daemon;
  auto clients = openAll(daemon, 2);
  REQUIRE(clients[0] != nullptr);
  float value = 1;
  const std::vector<int64_t> scalar;
  const auto op = rueda::kit::allreduce("x", scalar, &value, &value);
  std::vector<uint64_t> handles;
  REQUIRE(clients[0]->submit({op}, &handles).isOk());
  clients[1].reset();
  const Status pending = clients[0]->wait(handles[0], milliseconds(0));
  CHECK(pending.code() == Code::kShutDown);
  CHECK(contains(pending.message(), "the job has been shut down: rank 1 (pid "));
  CHECK(contains(pending.message(), "on host testhost) left it"));
  CHECK(clients[0]->run(op).code() == Code::kShutDown);
  CHECK(clients[0]->submit({op}, &handles).code() == Code::kShutDown);
  CHECK(clients[0]->health().code() == Code::kShutDown);
}

TEST_CASE("a rank that vanishes is lost: those that wait for it are told whom, on every path") {
  DaemonFixture daemon;
  const int how = GENERATE(0, 1, 2);  // Direct, ring, gather.
  HostileClient victim(daemon.socket());
  REQUIRE(victim.join(1, 2));
  const Opened opened = Client::open(daemon.options(0, 2));
  REQUIRE(opened.isOk());
  Client& client = *opened.value();
  REQUIRE(victim.awaitJob());
  std::vector<float> data(1000);
  const std::vector<int64_t> shape = {1000};
  const auto op = how == 2 ? rueda::kit::allgather("x", shape, data.data())
                           : rueda::kit::allreduce("x", shape, data.data(), data.data());
  std::thread waiter;
  Status status;
  std::vector<uint64_t> handles;
  if (how == 0)
    waiter = std::thread([&] { status = client.run(op); });
  else
    REQUIRE(client.submit({op}, &handles).isOk());
  REQUIRE(daemon.eventually([](const StateView& view) {
    return view.jobs.size() == 1 && view.jobs[0].pending.size() == 1;
  }));
  victim.close();
  if (how == 0)
    waiter.join();
  else
    status = client.wait(handles[0], milliseconds(0));
  CHECK(status.code() == Code::kRankLost);
  CHECK(contains(status.message(), "lost rank 1 (pid "));
  CHECK(contains(status.message(), "on host hostile), which closed its connection"));
  CHECK(client.health().code() == Code::kRankLost);
  CHECK(daemon.state().ranksLost == 1);
}

TEST_CASE("a job that has lost a rank can be started again while its others still hold on") {
  DaemonFixture daemon;
  HostileClient victim(daemon.socket());
  REQUIRE(victim.join(1, 2));
  const Opened survivor = Client::open(daemon.options(0, 2));
  REQUIRE(survivor.isOk());
  victim.close();
  REQUIRE(daemon.eventually(
      [](const StateView& view) { return !view.jobs.empty() && view.jobs[0].state == "failed"; }));
  const auto again = openAll(daemon, 2);
  CHECK(again[0] != nullptr);
  CHECK(again[1] != nullptr);
  CHECK(hasRanks(daemon.state(), 2, 3));
}

TEST_CASE("the first failure of a job is the one that is told") {
  DaemonFixture daemon;
  HostileClient first(daemon.socket());
  HostileClient second(daemon.socket());
  REQUIRE(first.join(1, 3));
  REQUIRE(second.join(2, 3));
  const Opened client = Client::open(daemon.options(0, 3));
  REQUIRE(client.isOk());
  first.close();
  REQUIRE(daemon.eventually([](const StateView& view) { return view.ranksLost == 1; }));
  second.close();
  REQUIRE(daemon.eventually([](const StateView& view) { return view.ranksLost == 2; }));
  CHECK(contains(client.value()->health().message(), "lost rank 1 "));
}

TEST_CASE("a draining daemon refuses new clients and lets the old ones finish") {
  DaemonFixture daemon;
  auto clients = openAll(daemon, 1);
  REQUIRE(clients[0] != nullptr);
  daemon.engine().requestStop(std::chrono::seconds(3600));
  REQUIRE(daemon.eventually([](const StateView& view) { return view.draining; }));
  const Opened late = Client::open(daemon.options(0, 1, "late"));
  CHECK(late.status().code() == Code::kUnavailable);
  CHECK(late.status().message() == "the daemon is draining, retry elsewhere or later");
  CHECK(clients[0]->health().isOk());
  clients.clear();
  CHECK(daemon.awaitEnd());
}

TEST_CASE("a second request ends a drain at once: clients learn that the daemon stops") {
  DaemonFixture daemon;
  const auto clients = openAll(daemon, 2);
  REQUIRE(clients[0] != nullptr);
  float value = 1;
  const std::vector<int64_t> scalar;
  std::vector<uint64_t> handles;
  REQUIRE(
      clients[0]->submit({rueda::kit::allreduce("x", scalar, &value, &value)}, &handles).isOk());
  daemon.engine().requestStop(std::chrono::seconds(3600));
  daemon.engine().requestStop(std::chrono::seconds(3600));
  CHECK(daemon.awaitEnd());
  const Status status = clients[0]->wait(handles[0], milliseconds(0));
  CHECK(status.code() == Code::kShutDown);
  CHECK(status.message() == "the daemon is stopping");
}

TEST_CASE("a client whose daemon is gone is told so and does not hang") {
  auto daemon = std::make_unique<DaemonFixture>();
  const auto clients = openAll(*daemon, 1);
  REQUIRE(clients[0] != nullptr);
  const std::string socket = daemon->socket();
  daemon.reset();
  CHECK_FALSE(clients[0]->health().isOk());
  auto options = rueda::client::Options{};
  options.socket = socket;
  const Opened none = Client::open(options);
  CHECK(none.status().code() == Code::kUnavailable);
  CHECK(contains(none.status().message(), "nothing listens there, the daemon has ended"));
}

TEST_CASE("a private daemon ends with its last client, not before the first") {
  DaemonSetup setup;
  setup.engine.endWithLastClient = true;
  DaemonFixture daemon(setup);
  CHECK(openAll(daemon, 2)[0] != nullptr);  // Closed again at the end of this line.
  CHECK(daemon.awaitEnd());
}

TEST_CASE("a private daemon with a lifeline lives until that is cut") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  DaemonSetup setup;
  setup.engine.endWithLastClient = true;
  setup.engine.lifelineFd = ends[0];
  DaemonFixture daemon(setup);
  CHECK(openAll(daemon, 2)[0] != nullptr);
  // The clients are gone, the daemon still answers.
  CHECK(daemon.eventually([](const StateView& view) { return view.jobs.empty(); }));
  CHECK(openAll(daemon, 2, "again")[0] != nullptr);
  ::close(ends[1]);
  CHECK(daemon.awaitEnd());
  ::close(ends[0]);
}

TEST_CASE("an operation that waits too long fails its job, naming who did not come") {
  DaemonSetup setup;
  setup.engine.job.stallShutdown = std::chrono::seconds(1);
  DaemonFixture daemon(setup);
  const auto clients = openAll(daemon, 2);
  REQUIRE(clients[0] != nullptr);
  const Status status = clients[0]->run(rueda::kit::barrier("slow"));
  CHECK(status.code() == Code::kStalled);
  CHECK(contains(status.message(), "barrier 'slow' waits since "));
  CHECK(contains(status.message(), "for ranks [1]: rank 1 (pid "));
  CHECK(contains(status.message(), "; present are ranks [0]"));
}
