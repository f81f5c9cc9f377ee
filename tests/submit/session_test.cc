// SPDX-License-Identifier: Apache-2.0
#include "daemon/submit/session.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "shm/memfd.h"
#include "tests/kit/flow_maker.h"

namespace {

using rueda::flow::Segment;
using rueda::shm::Code;
using rueda::shm::Fd;
using rueda::shm::MessageType;
using rueda::shm::Notice;
using rueda::shm::Packet;
using rueda::shm::ReceiveState;
using rueda::shm::SegmentMessage;
using rueda::submit::Session;

// A session and its client's end of the socket.
struct Connected {
  Connected() {
    int fds[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) return;
    client = Fd(fds[1]);
    session = std::make_unique<Session>(1, Fd(fds[0]),
                                        rueda::shm::PeerCredentials{::getpid(), ::getuid(), 0},
                                        rueda::flow::TimePoint{});
  }
  // The next packet; its size is 0 when there is none.
  Packet read() {
    Packet packet;
    const auto got = rueda::shm::receivePacket(client.get(), false, &packet);
    if (!got.isOk() || got.value() != ReceiveState::kPacket) packet.bytes = 0;
    return packet;
  }
  Fd client;
  std::unique_ptr<Session> session;
};

Notice numbered(int32_t number) {
  auto notice = rueda::shm::makeMessage<Notice>(MessageType::kFormingNotice);
  notice.rank = number;
  return notice;
}

}  // namespace

TEST_CASE("a welcome brings a sealed control segment, a doorbell and the board") {
  Connected c;
  REQUIRE(c.session != nullptr);
  const auto board = rueda::shm::createSealedMemfd("board", 4096);
  REQUIRE(board.isOk());
  const auto welcome = rueda::shm::makeMessage<rueda::shm::Welcome>(MessageType::kWelcome);
  rueda::submit::Greeting greeting;
  greeting.job = "train";
  REQUIRE(c.session->open(greeting, welcome, board.value().get()).isOk());
  const Packet packet = c.read();
  REQUIRE(packet.as<rueda::shm::Welcome>(MessageType::kWelcome) != nullptr);
  REQUIRE(packet.fds.size() == 3);
  CHECK(rueda::shm::verifySealedMemfd(packet.fds[0].get(), rueda::shm::kControlBytes).isOk());
  CHECK(rueda::shm::verifySealedMemfd(packet.fds[2].get(), 4096).isOk());
  // The client's mapping is the daemon's.
  const auto mapping = rueda::shm::Mapping::map(packet.fds[0].get(), rueda::shm::kControlBytes);
  REQUIRE(mapping.isOk());
  const auto* control = reinterpret_cast<rueda::shm::ControlHeader*>(mapping.value().data());
  CHECK(control->daemonAsleep.load() == 1);  // The first submission must ring.
  c.session->control()->completeTail.store(7);
  CHECK(control->completeTail.load() == 7);
  CHECK(c.session->submissions().available() == 0);
  CHECK(c.session->greeting.job == "train");
}

TEST_CASE("a session knows its peer, by a descriptor where the kernel gives one") {
  Connected c;
  REQUIRE(c.session != nullptr);
  CHECK(c.session->id() == 1);
  CHECK(c.session->peer().pid == ::getpid());
  CHECK(c.session->pidfd() >= 0);
}

TEST_CASE("messages to a client that does not read wait, keep their order, and are sent later") {
  Connected c;
  REQUIRE(c.session != nullptr);
  int32_t sent = 0;
  while (!c.session->hasOutbox()) REQUIRE(c.session->send(numbered(sent++)).isOk());
  for (int i = 0; i < 10; ++i) REQUIRE(c.session->send(numbered(sent++)).isOk());
  CHECK_FALSE(c.session->flushOutbox());
  int32_t expected = 0;
  while (expected < sent) {
    const Packet packet = c.read();
    if (packet.bytes == 0) {
      c.session->flushOutbox();
      continue;
    }
    REQUIRE(packet.as<Notice>(MessageType::kFormingNotice)->rank == expected++);
  }
  CHECK(c.session->flushOutbox());
  CHECK_FALSE(c.session->hasOutbox());
}

TEST_CASE("a client that never reads has a bound") {
  Connected c;
  REQUIRE(c.session != nullptr);
  rueda::shm::Status status;
  int sent = 0;
  while ((status = c.session->send(numbered(0))).isOk() && sent < 100000) ++sent;
  CHECK(status.code() == Code::kResourceExhausted);
  CHECK(status.message() == "the client has not read 2048 messages");
}

TEST_CASE("a descriptor that waits in the outbox stays open until it is sent") {
  Connected c;
  REQUIRE(c.session != nullptr);
  while (!c.session->hasOutbox()) REQUIRE(c.session->send(numbered(0)).isOk());
  std::shared_ptr<Segment> segment = rueda::kit::makeSegment(5, 0, 4096);
  const std::weak_ptr<Segment> watch = segment;
  auto message = rueda::shm::makeMessage<SegmentMessage>(MessageType::kSegmentGranted);
  message.bytes = 4096;
  REQUIRE(c.session->send(message, segment).isOk());
  segment.reset();
  CHECK_FALSE(watch.expired());
  for (;;) {
    const Packet packet = c.read();
    if (packet.bytes == 0) {
      c.session->flushOutbox();
      continue;
    }
    if (packet.as<SegmentMessage>(MessageType::kSegmentGranted) == nullptr) continue;
    REQUIRE(packet.fds.size() == 1);
    CHECK(rueda::shm::verifySealedMemfd(packet.fds[0].get(), 4096).isOk());
    break;
  }
  CHECK(watch.expired());
}

TEST_CASE("messages to a client that is gone are dropped, not kept") {
  Connected c;
  REQUIRE(c.session != nullptr);
  c.client.reset();
  CHECK(c.session->send(numbered(0)).isOk());
  CHECK_FALSE(c.session->hasOutbox());
}
