// SPDX-License-Identifier: Apache-2.0

// What a snapshot of the engine says of jobs at work, waiting, deadlocked and failed.

#include <catch2/catch.hpp>

#include "tests/kit/abstract_address.h"
#include "tests/kit/daemon_fixture.h"
#include "tests/kit/hostile_client.h"
#include "tests/kit/operations.h"
#include "tests/kit/two_ranks.h"

namespace {

using rueda::client::Client;
using rueda::flow::JobView;
using rueda::flow::StateView;
using rueda::kit::DaemonFixture;
using rueda::kit::DaemonSetup;
using rueda::kit::HostileClient;
using rueda::kit::TwoRanks;
using rueda::shm::Code;
using std::chrono::milliseconds;

const std::vector<int64_t> kHundred = {100};

uint64_t submit(Client& client, const char* name, float* data) {
  return rueda::kit::start(client, name, kHundred, data);
}

JobView onlyJob(const StateView& view) { return view.jobs.size() == 1 ? view.jobs[0] : JobView{}; }

}  // namespace

TEST_CASE("operations, bytes and requests are counted") {
  DaemonFixture daemon;
  TwoRanks two(daemon);
  REQUIRE(two.areOpen());
  float data[2][100] = {};
  for (int i = 0; i < 3; ++i) {
    uint64_t handles[2];
    for (int rank = 0; rank < 2; ++rank)
      handles[rank] = submit(*two.clients[rank], "x", data[rank]);
    for (int rank = 0; rank < 2; ++rank)
      REQUIRE(two.clients[rank]->wait(handles[rank], milliseconds(0)).isOk());
  }
  const JobView job = onlyJob(daemon.state());
  CHECK(job.opsCompleted == 3);
  CHECK(job.opsFailed == 0);
  CHECK(job.bytesReduced == 3 * 400);
  CHECK(job.pending.empty());
  CHECK(job.ranks.at(1).submitted == 3);
  CHECK(job.ranks.at(1).completed == 3);
}

TEST_CASE("an operation that lacks a rank is shown with who is there and who is not") {
  DaemonFixture daemon;
  TwoRanks two(daemon);
  REQUIRE(two.areOpen());
  float data[100] = {};
  REQUIRE(submit(*two.clients[1], "lonely", data) != 0);
  REQUIRE(daemon.eventually([](const StateView& view) { return !onlyJob(view).pending.empty(); }));
  const auto pending = onlyJob(daemon.state()).pending.at(0);
  CHECK(pending.name == "lonely");
  CHECK(pending.kind == "allreduce");
  CHECK(pending.dtype == "float32");
  CHECK(pending.shape == "[100]");
  CHECK(pending.present == std::vector<int>{1});
  CHECK(pending.missing == std::vector<int>{0});
  CHECK_FALSE(onlyJob(daemon.state()).deadlocked);
}

TEST_CASE("a failed operation is counted as such, the job runs on") {
  DaemonFixture daemon;
  TwoRanks two(daemon);
  REQUIRE(two.areOpen());
  float data[2][100] = {};
  const std::vector<int64_t> fifty = {50};
  std::vector<uint64_t> handles;
  REQUIRE(two.clients[0]
              ->submit({rueda::kit::allreduce("x", fifty, data[0], data[0])}, &handles)
              .isOk());
  const uint64_t other = submit(*two.clients[1], "x", data[1]);
  CHECK(two.clients[0]->wait(handles[0], milliseconds(0)).code() == Code::kMismatch);
  CHECK(two.clients[1]->wait(other, milliseconds(0)).code() == Code::kMismatch);
  const JobView job = onlyJob(daemon.state());
  CHECK(job.opsFailed == 1);
  CHECK(job.opsCompleted == 0);
  CHECK(job.state == "running");
}

TEST_CASE("ranks that block on different operations are deadlocked, on every mixture of paths") {
  DaemonFixture daemon;
  const bool isIsolated = GENERATE(false, true);
  std::unique_ptr<Client> clients[2];
  std::thread opener([&] {
    auto options = daemon.options(1, 2);
    options.isolated = isIsolated;
    clients[1] = std::move(Client::open(options)).value();
  });
  auto options = daemon.options(0, 2);
  options.isolated = isIsolated;
  clients[0] = std::move(Client::open(options)).value();
  opener.join();
  std::thread blocked[2];
  for (int rank = 0; rank < 2; ++rank)
    blocked[rank] = std::thread([&, rank] {
      const auto op = rueda::kit::barrier(rank == 0 ? "a" : "b");
      (void)clients[rank]->run(op);
    });
  const bool isSeen =
      daemon.eventually([](const StateView& view) { return onlyJob(view).deadlocked; });
  CHECK(isSeen);
  CHECK(onlyJob(daemon.state()).pending.size() == 2);
  // Whoever looks at that ends the job.
  daemon.stop();
  for (std::thread& thread : blocked) thread.join();
}

TEST_CASE("a failed job keeps its reason and its ranks' fates until its last rank has gone") {
  DaemonFixture daemon;
  HostileClient victim(daemon.socket());
  REQUIRE(victim.join(1, 2));
  const auto survivor = Client::open(daemon.options(0, 2));
  REQUIRE(survivor.isOk());
  victim.close();
  REQUIRE(daemon.eventually([](const StateView& view) { return onlyJob(view).state == "failed"; }));
  const JobView job = onlyJob(daemon.state());
  CHECK_THAT(job.failure, Catch::Contains("lost rank 1 (pid "));
  CHECK(job.ranks.at(0).state == "running");
  CHECK(job.ranks.at(1).state == "lost");
}

TEST_CASE("a forming job is shown with the ranks that it has") {
  DaemonFixture daemon;
  HostileClient first(daemon.socket());
  REQUIRE(first.join(1, 3, "forming"));
  const JobView job = onlyJob(daemon.state());
  CHECK(job.id == "forming");
  CHECK(job.state == "forming");
  CHECK(job.ranks.at(0).state == "absent");
  CHECK(job.ranks.at(1).state == "running");
  CHECK(job.ranks.at(1).host == "hostile");
}

TEST_CASE("health says when the daemon drains") {
  DaemonFixture daemon;
  HostileClient client(daemon.socket());
  REQUIRE(client.join(0, 1));
  for (const auto& part : daemon.state().health) CHECK(part.serving);
  daemon.engine().requestStop(std::chrono::seconds(3600));
  REQUIRE(daemon.eventually([](const StateView& view) { return view.draining; }));
  bool isServing = true;
  for (const auto& part : daemon.state().health) isServing = isServing && part.serving;
  CHECK_FALSE(isServing);
}

TEST_CASE("a snapshot that the engine does not give in time is an error") {
  // Of an engine that nobody runs.
  rueda::execute::WorkerPool pool(1);
  const std::string address = rueda::kit::abstractAddress();
  auto listener = rueda::shm::listenUnix(address, 0600);
  REQUIRE(listener.isOk());
  rueda::engine::Engine engine({}, std::move(listener).value(), pool);
  const auto view = engine.snapshot(milliseconds(5));
  CHECK(view.status().code() == Code::kDeadlineExceeded);
  CHECK(view.status().message() == "the engine did not answer within 5 ms");
}
