// SPDX-License-Identifier: Apache-2.0
#include "tests/kit/daemon_fixture.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "daemon/base/log.h"
#include "shm/unix_socket.h"
#include "tests/kit/abstract_address.h"

namespace rueda::kit {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A rank that closes ends the job, so that all close together. One whose job has failed goes on.
void meetAtEnd(client::Client* client) {
  client::Operation barrier;
  barrier.kind = shm::OpKind::kBarrier;
  barrier.name = "kit: end";
  barrier.count = 0;
  (void)client->run(barrier);
}

std::atomic<bool> isPauseAsked{false};
std::atomic<bool> isPaused{false};

void holdThread(int /*signal*/) {
  isPaused.store(true);
  while (isPauseAsked.load()) ::sched_yield();
  isPaused.store(false);
}

}  // namespace

DaemonFixture::DaemonFixture(DaemonSetup setup) : socket_(abstractAddress()) {
  base::initLog(base::LogLevel::kOff, false);
  setup.engine.socket = socket_;
  uint64_t& bytes = setup.engine.quota.bytesPerUid;
  bytes = bytes == 0 ? uint64_t{8} << 30 : bytes + shm::kBoardsBytes;
  workers_ = std::make_unique<execute::WorkerPool>(setup.workers);
  engine_ = std::make_unique<engine::Engine>(
      setup.engine,
      std::move(shm::listenUnix(socket_, 0600, !setup.engine.lobby.refuseDescriptors)).value(),
      *workers_);
  thread_ = std::thread([this] {
    tid_.store(static_cast<pid_t>(::syscall(SYS_gettid)));
    engine_->run();
    ended_.store(true);
  });
}

DaemonFixture::~DaemonFixture() { stop(); }

void DaemonFixture::pause() {
  while (tid_.load() == 0) ::sched_yield();
  struct sigaction action {};
  action.sa_handler = holdThread;
  ::sigaction(SIGUSR1, &action, nullptr);
  isPauseAsked.store(true);
  ::syscall(SYS_tgkill, ::getpid(), tid_.load(), SIGUSR1);
  while (!isPaused.load()) ::sched_yield();
}

void DaemonFixture::resume() { isPauseAsked.store(false); }

void DaemonFixture::stop() {
  if (!thread_.joinable()) return;
  engine_->requestStop(std::chrono::seconds(0));
  thread_.join();
  workers_->stop();
}

client::Options DaemonFixture::options(int rank, int size, const std::string& job) const {
  client::Options options;
  options.rank = options.localRank = rank;
  options.size = options.localSize = size;
  options.socket = socket_;
  options.job = job;
  options.hostname = "testhost";
  return options;
}

flow::StateView DaemonFixture::state() {
  auto view = engine_->snapshot(std::chrono::duration_cast<milliseconds>(kPatience));
  return view.isOk() ? std::move(view).value() : flow::StateView{};
}

bool DaemonFixture::eventually(const std::function<bool(const flow::StateView&)>& wanted) {
  const auto deadline = steady_clock::now() + kPatience;
  do {
    if (wanted(state())) return true;
  } while (steady_clock::now() < deadline);
  return false;
}

bool DaemonFixture::awaitEnd() {
  const auto deadline = steady_clock::now() + kPatience;
  while (!ended_.load()) {
    if (steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

std::string runRanks(const DaemonFixture& daemon, int size, const RankBody& body,
                     const std::function<void(client::Options*)>& adjust) {
  std::vector<std::string> texts(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      std::string& text = texts[static_cast<size_t>(rank)];
      auto options = daemon.options(rank, size);
      if (adjust) adjust(&options);
      auto client = client::Client::open(options);
      text = client.isOk() ? body(*client.value(), rank) : problem("open", client.status());
      if (text.empty()) meetAtEnd(client.value().get());
      if (!text.empty()) text = "rank " + std::to_string(rank) + ": " + text + "\n";
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::string all;
  for (const std::string& text : texts) all += text;
  return all;
}

std::string problem(const std::string& what, const shm::Status& status) {
  return status.isOk() ? "" : what + ": " + status.toString();
}

}  // namespace rueda::kit
