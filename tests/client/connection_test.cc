// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "shm/memfd.h"
#include "tests/kit/abstract_address.h"
#include "tests/kit/capture_stderr.h"
#include "tests/kit/daemon_fixture.h"
#include "tests/kit/hostile_client.h"

namespace {

using rueda::client::Connection;
using rueda::client::Options;
using rueda::shm::Code;
using rueda::shm::Fd;
using rueda::shm::makeMessage;
using rueda::shm::MessageType;
using rueda::shm::Notice;
using rueda::shm::Packet;
using rueda::shm::PlainMessage;
using rueda::shm::Result;
using rueda::shm::SegmentMessage;
using rueda::shm::Status;
using rueda::shm::Welcome;
using std::chrono::milliseconds;

using Opened = Result<std::unique_ptr<Connection>>;

// A daemon that says what a test tells it to. It runs on the test's thread; the client under test
// on another.
class ScriptedDaemon {
 public:
  ScriptedDaemon()
      : address(rueda::kit::abstractAddress()),
        listener_(std::move(rueda::shm::listenUnix(address, 0600)).value()) {}

  // Accepts the next client and reads its hello; false if none comes.
  bool accept() {
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 30000) != 1) return false;
    client_ = std::move(rueda::shm::acceptUnix(listener_.get())).value();
    pollfd readable{client_.get(), POLLIN, 0};
    Packet packet;
    return ::poll(&readable, 1, 30000) == 1 &&
           rueda::shm::receivePacket(client_.get(), false, &packet).isOk() &&
           packet.as<rueda::shm::Hello>(MessageType::kHello) != nullptr;
  }
  template <typename T>
  void send(const T& message, const std::vector<int>& fds = {}) {
    (void)rueda::shm::sendPacket(client_.get(), &message, sizeof message, fds.data(), fds.size());
  }
  void notice(MessageType type, Code code, const std::string& text) {
    auto message = makeMessage<Notice>(type);
    message.code = static_cast<int32_t>(code);
    rueda::shm::copyText(message.text, sizeof message.text, text);
    send(message);
  }
  // A proper welcome.
  void welcome() {
    const auto control = rueda::shm::createSealedMemfd("control", rueda::shm::kControlBytes);
    const auto board = rueda::shm::createSealedMemfd("board", rueda::shm::kBoardsBytes);
    const Fd bell(::eventfd(0, EFD_CLOEXEC));
    send(makeMessage<Welcome>(MessageType::kWelcome),
         {control.value().get(), bell.get(), board.value().get()});
  }
  void hangUp() { client_.reset(); }

  const std::string address;

 private:
  Fd listener_;
  Fd client_;
};

// Opens a connection on a thread, while `script` plays the daemon.
Opened openAgainst(ScriptedDaemon* daemon, const std::function<void()>& script,
                   Options options = {}) {
  options.socket = daemon->address;
  Opened opened(Status(Code::kInternal, "not run"));
  std::thread client([&] { opened = Connection::open(options); });
  if (daemon->accept()) script();
  client.join();
  return opened;
}

}  // namespace

TEST_CASE("a refusal is told in the daemon's words and with its code") {
  ScriptedDaemon daemon;
  const auto opened = openAgainst(&daemon, [&] {
    daemon.notice(MessageType::kRefused, Code::kPermissionDenied, "not you");
    daemon.hangUp();
  });
  CHECK(opened.status().code() == Code::kPermissionDenied);
  CHECK(opened.status().message() == "not you");
}

TEST_CASE("a refusal that claims to be well is one all the same") {
  ScriptedDaemon daemon;
  const auto opened =
      openAgainst(&daemon, [&] { daemon.notice(MessageType::kRefused, Code::kOk, "no reason"); });
  CHECK(opened.status().code() == Code::kProtocolError);
}

TEST_CASE("a daemon that hangs up, or answers something else, is told so") {
  ScriptedDaemon daemon;
  SECTION("closed at once") {
    const auto opened = openAgainst(&daemon, [&] { daemon.hangUp(); });
    CHECK(opened.status().code() == Code::kDaemonLost);
  }
  SECTION("not a welcome") {
    const auto opened = openAgainst(
        &daemon, [&] { daemon.send(makeMessage<PlainMessage>(MessageType::kJobReady)); });
    CHECK(opened.status().code() == Code::kProtocolError);
  }
  SECTION("a welcome without descriptors") {
    const auto opened =
        openAgainst(&daemon, [&] { daemon.send(makeMessage<Welcome>(MessageType::kWelcome)); });
    CHECK(opened.status().code() == Code::kProtocolError);
  }
  SECTION("a welcome with memory that could shrink under the client") {
    const Fd plain(::memfd_create("plain", MFD_CLOEXEC));
    REQUIRE(::ftruncate(plain.get(), rueda::shm::kControlBytes) == 0);
    const auto opened = openAgainst(&daemon, [&] {
      daemon.send(makeMessage<Welcome>(MessageType::kWelcome),
                  {plain.get(), plain.get(), plain.get()});
    });
    CHECK(opened.status().code() == Code::kProtocolError);
  }
  SECTION("bytes of no message") {
    const auto opened = openAgainst(&daemon, [&] { daemon.send(uint64_t{42}); });
    CHECK(opened.status().code() == Code::kProtocolError);
  }
}

TEST_CASE("while the job forms, notices are shown and a failure ends the wait") {
  ScriptedDaemon daemon;
  rueda::kit::CaptureStderr capture;
  const auto opened = openAgainst(&daemon, [&] {
    daemon.welcome();
    daemon.notice(MessageType::kFormingNotice, Code::kOk, "waiting: ranks [1] of 2");
    daemon.notice(MessageType::kRefused, Code::kDeadlineExceeded, "ranks [1] did not come");
  });
  const std::string shown = capture.text();
  CHECK(opened.status().code() == Code::kDeadlineExceeded);
  CHECK(opened.status().message() == "ranks [1] did not come");
  CHECK(shown == "rueda: waiting: ranks [1] of 2\n");
}

TEST_CASE("a session that was opened is well until the daemon says otherwise") {
  ScriptedDaemon daemon;
  const auto opened = openAgainst(&daemon, [&] {
    daemon.welcome();
    daemon.send(makeMessage<PlainMessage>(MessageType::kJobReady));
  });
  REQUIRE(opened.isOk());
  Connection& connection = *opened.value();
  connection.pump();
  CHECK_FALSE(connection.hasFailed());
  SECTION("that the job has failed") {
    daemon.notice(MessageType::kJobFailed, Code::kRankLost, "lost rank 1");
    connection.pump();
    CHECK(connection.failure().message() == "lost rank 1");
    // The first reason is kept.
    daemon.hangUp();
    connection.pump();
    CHECK(connection.failure().message() == "lost rank 1");
  }
  SECTION("by hanging up") {
    daemon.hangUp();
    connection.pump();
    CHECK(connection.failure().code() == Code::kDaemonLost);
  }
  SECTION("by what no daemon says") {
    daemon.send(makeMessage<PlainMessage>(MessageType::kGoodbye));
    connection.pump();
    CHECK(connection.failure().code() == Code::kProtocolError);
  }
  SECTION("by its end, without a word, while the board says that the job is over") {
    const Status status = connection.awaitFailure();
    CHECK(status.code() == Code::kRankLost);
    CHECK(status.message() == "the job has ended; the daemon did not say why");
  }
}

TEST_CASE("a segment of a peer arrives by its number, or is given up in time") {
  ScriptedDaemon daemon;
  const auto opened = openAgainst(&daemon, [&] {
    daemon.welcome();
    daemon.send(makeMessage<PlainMessage>(MessageType::kJobReady));
  });
  REQUIRE(opened.isOk());
  const auto memory = rueda::shm::createSealedMemfd("peer", 8192);
  auto message = makeMessage<SegmentMessage>(MessageType::kPeerSegment);
  message.segment = 9;
  message.bytes = 8192;
  daemon.send(message, {memory.value().get()});
  CHECK(opened.value()->awaitSegment(9, 30000).isOk());
  CHECK(opened.value()->segments().region(9).bytes == 8192);
  const Status none = opened.value()->awaitSegment(10, 1);
  CHECK(none.code() == Code::kInternal);
  CHECK(none.message() == "segment 10 of a peer did not arrive");
  CHECK_FALSE(opened.value()->hasFailed());
}

TEST_CASE("job ids are checked before anything is sent") {
  ScriptedDaemon daemon;
  Options options;
  options.socket = daemon.address;
  options.job = GENERATE(std::string(), std::string(128, 'j'));
  CHECK(Connection::open(options).status().code() == Code::kInvalidArgument);
}

TEST_CASE("an interrupt ends the wait for the daemon and for the other ranks") {
  ScriptedDaemon scripted;  // Never answers.
  Options options;
  options.socket = scripted.address;
  options.interrupted = [] { return true; };
  CHECK(Connection::open(options).status().code() == Code::kInterrupted);
  rueda::kit::DaemonFixture daemon;
  options = daemon.options(0, 2);  // Rank 1 never comes.
  options.interrupted = [] { return true; };
  CHECK(Connection::open(options).status().message() == "interrupted in init");
}

// Ctrl-C was not heard for 30 s where the daemon was stopped.
TEST_CASE("an interrupt ends the wait for memory, and the session") {
  ScriptedDaemon daemon;
  std::atomic<bool> interrupted{false};
  Options options;
  options.interrupted = [&] { return interrupted.load(); };
  const auto opened = openAgainst(
      &daemon,
      [&] {
        daemon.welcome();
        daemon.send(makeMessage<PlainMessage>(MessageType::kJobReady));
      },
      options);
  REQUIRE(opened.isOk());
  interrupted = true;
  const auto begin = std::chrono::steady_clock::now();
  const bool isOwn = GENERATE(true, false);
  const Status status =
      isOwn ? opened.value()->addSegment(4096).status() : opened.value()->awaitSegment(9, 30000);
  CHECK(status.code() == Code::kInterrupted);
  CHECK(status.message() == "interrupted while waiting for memory from the daemon");
  CHECK(opened.value()->failure().code() == Code::kInterrupted);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(5));
}

TEST_CASE("the longest start timeout is patience, not haste") {
  // Once a deadline of nearly 2^32 ms wrapped around, and the wait ended with its first look.
  rueda::kit::DaemonFixture daemon;
  std::atomic<int> looks{0};
  std::atomic<bool> ended{false};
  Options options = daemon.options(0, 2);
  options.startTimeoutMs = 0xffffffffu - 9999;  // Plus the 10 s of the welcome: 2^32.
  options.interrupted = [&looks] {
    ++looks;
    return false;
  };
  Opened opened(Status(Code::kInternal, "not run"));
  std::thread first([&] {
    opened = Connection::open(options);
    ended.store(true);
  });
  while (looks.load() < 2 && !ended.load()) std::this_thread::yield();
  rueda::kit::HostileClient second(daemon.socket());
  const bool joined = second.join(1, 2);
  first.join();
  CHECK(joined);
  CHECK(opened.status().toString() == "ok");
}
