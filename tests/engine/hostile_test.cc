// SPDX-License-Identifier: Apache-2.0

// Clients that break the contract: each is shown the door with a reason, its job learns of it, and
// other jobs notice nothing.

#include <sys/socket.h>

#include <catch2/catch.hpp>

#include "shm/memfd.h"
#include "tests/kit/bystander.h"
#include "tests/kit/daemon_fixture.h"
#include "tests/kit/hostile_client.h"
#include "tests/kit/operations.h"

namespace {

using rueda::client::Client;
using rueda::flow::StateView;
using rueda::kit::allreduceEntry;
using rueda::kit::Bystander;
using rueda::kit::DaemonFixture;
using rueda::kit::DaemonSetup;
using rueda::kit::HostileClient;
using rueda::shm::Code;
using rueda::shm::EntryType;
using rueda::shm::MessageType;
using rueda::shm::SegmentMessage;
using rueda::shm::SubmissionEntry;

constexpr uint64_t kSegmentBytes = 4096;

// A job of one hostile rank with one segment, ready to misbehave.
struct Attack {
  explicit Attack(const DaemonFixture& daemon)
      : client(daemon.socket()),
        isReady(client.join(0, 1) && client.awaitJob()),
        segment(isReady ? client.allocate(kSegmentBytes) : 0) {}
  HostileClient client;
  bool isReady;
  uint32_t segment;
};

}  // namespace

TEST_CASE("entries that break the contract end their session with the reason") {
  struct Variant {
    const char* reason;
    std::function<void(SubmissionEntry*)> spoil;
  };
  const std::vector<Variant> variants = {
      {"unknown kind 9", [](auto* e) { e->kind = 9; }},
      {"entry of type 200", [](auto* e) { e->type = 200; }},
      {"entry of type 1", [](auto* e) { e->type = 1; }},
      {"leaves segment", [](auto* e) { e->inOffset = kSegmentBytes; }},
      {"segment 77 is not one of this rank's", [](auto* e) { e->outSegment = 77; }},
      {"overlap partly", [](auto* e) { e->outOffset = 4; }},
      {"group of 4294967295 operations", [](auto* e) { e->groupSize = 0xffffffff; }},
  };
  DaemonFixture daemon;
  Bystander bystander(daemon);
  for (const Variant& variant : variants) {
    Attack attack(daemon);
    REQUIRE(attack.segment != 0);
    SubmissionEntry entry = allreduceEntry(1, attack.segment);
    variant.spoil(&entry);
    attack.client.submit(entry, {16}, "x");
    CHECK_THAT(attack.client.noticeText(MessageType::kRefused), Catch::Contains(variant.reason));
    CHECK(attack.client.isClosed());
  }
  CHECK(daemon.eventually([&](const StateView& view) { return view.jobs.size() == 1; }));
  CHECK(daemon.state().sessionsRejected == variants.size());
  CHECK(bystander.isWell());
}

TEST_CASE("a reduction that the type does not have is an error, and the session goes on") {
  DaemonFixture daemon;
  Attack attack(daemon);
  REQUIRE(attack.segment != 0);
  SubmissionEntry entry = allreduceEntry(1, attack.segment);
  entry.dtype = static_cast<uint8_t>(rueda::shm::DType::kComplex64);
  entry.reduceOp = static_cast<uint8_t>(rueda::shm::ReduceOp::kMax);
  attack.client.submit(entry, {16}, "x");
  const auto refused = attack.client.completion();
  REQUIRE(refused.has_value());
  CHECK(refused->code == static_cast<int32_t>(Code::kInvalidArgument));
  CHECK_THAT(std::string(refused->tail, refused->textBytes),
             Catch::Equals("allreduce 'x': complex64 has no max"));
  entry.requestId = 2;
  entry.reduceOp = static_cast<uint8_t>(rueda::shm::ReduceOp::kProduct);
  attack.client.submit(entry, {16}, "x");
  const auto done = attack.client.completion();
  REQUIRE(done.has_value());
  CHECK(done->code == static_cast<int32_t>(Code::kOk));
}

TEST_CASE("the peers of an expelled rank learn that it was disconnected, and why") {
  DaemonFixture daemon;
  HostileClient hostile(daemon.socket());
  REQUIRE(hostile.join(1, 2));
  const auto peer = Client::open(daemon.options(0, 2));
  REQUIRE(peer.isOk());
  SubmissionEntry entry = allreduceEntry(1, 99);
  hostile.submit(entry, {16}, "x");
  const auto status = peer.value()->run(rueda::kit::barrier("b"));
  CHECK(status.code() == Code::kRankLost);
  CHECK_THAT(status.message(),
             Catch::Contains("was disconnected: segment 99 is not one of this rank's"));
}

TEST_CASE("impossible ring indices end the session") {
  DaemonFixture daemon;
  Bystander bystander(daemon);
  Attack attack(daemon);
  REQUIRE(attack.segment != 0);
  SECTION("of the submission ring") {
    attack.client.control()->submitTail.store(rueda::shm::kRingSlots + 1);
    attack.client.ringDoorbell();
    CHECK_THAT(attack.client.noticeText(MessageType::kRefused),
               Catch::Contains("impossible index in the submission ring"));
  }
  SECTION("of the completion ring") {
    attack.client.control()->completeHead.store(5000);
    attack.client.submit(allreduceEntry(1, attack.segment), {16}, "x");
    CHECK_THAT(attack.client.noticeText(MessageType::kRefused),
               Catch::Contains("impossible index in the completion ring"));
  }
  CHECK(attack.client.isClosed());
  CHECK(bystander.isWell());
}

TEST_CASE("a tail that was not published with its entry ends the session") {
  DaemonFixture daemon;
  Attack attack(daemon);
  REQUIRE(attack.segment != 0);
  auto slots =
      rueda::kit::submissionSlots(allreduceEntry(1, attack.segment), {16}, std::string(500, 'n'));
  slots.pop_back();
  rueda::kit::publish(&attack.client.submissions(), slots);
  attack.client.ringDoorbell();
  CHECK_THAT(attack.client.noticeText(MessageType::kRefused),
             Catch::Contains("submission whose tail was not published with it"));
}

TEST_CASE("a submission before the job is complete ends the session") {
  // Once the daemon went on with the session that it had just freed.
  DaemonFixture daemon;
  Bystander bystander(daemon);
  HostileClient hostile(daemon.socket());
  REQUIRE(hostile.join(0, 2));
  hostile.submit(allreduceEntry(1, 0), {0}, "x");
  CHECK_THAT(hostile.noticeText(MessageType::kRefused),
             Catch::Contains("submission before the job is complete"));
  CHECK(bystander.isWell());
}

TEST_CASE("more operations in flight than allowed end the session") {
  DaemonFixture daemon;
  HostileClient hostile(daemon.socket());
  HostileClient peer(daemon.socket());
  REQUIRE(hostile.join(0, 2));
  REQUIRE(peer.join(1, 2));
  REQUIRE(hostile.awaitJob());
  for (uint32_t i = 0; i <= rueda::shm::kMaxInFlight; ++i) {
    while (hostile.submissions().space() < 1) std::this_thread::yield();
    const auto slots =
        rueda::kit::submissionSlots(allreduceEntry(i + 1, 0), {0}, std::to_string(i));
    rueda::kit::publish(&hostile.submissions(), slots);
    if (i % 1024 == 0 || i == rueda::shm::kMaxInFlight) hostile.ringDoorbell();
  }
  CHECK_THAT(hostile.noticeText(MessageType::kRefused),
             Catch::Contains("more than 16384 operations in flight"));
  CHECK_THAT(peer.noticeText(MessageType::kJobFailed), Catch::Contains("was disconnected"));
}

TEST_CASE("a client that never reads its outcomes is ended before they fill the daemon") {
  // Once the backlog grew without a bound, since each outcome made room for the next operation.
  DaemonFixture daemon;
  Bystander bystander(daemon);
  Attack attack(daemon);
  REQUIRE(attack.segment != 0);
  uint64_t sent = 0;
  const auto deadline = std::chrono::steady_clock::now() + rueda::kit::kPatience;
  bool isGone = false;
  while (!isGone && std::chrono::steady_clock::now() < deadline) {
    if (attack.client.submissions().space() < 1) {
      attack.client.ringDoorbell();
      isGone = daemon.state().jobs.size() == 1;
      continue;
    }
    const auto slots = rueda::kit::submissionSlots(allreduceEntry(++sent, 0), {0}, "x");
    rueda::kit::publish(&attack.client.submissions(), slots);
  }
  CHECK(isGone);
  CHECK_THAT(attack.client.noticeText(MessageType::kRefused),
             Catch::Contains("outcomes wait to be read"));
  CHECK(bystander.isWell());
}

TEST_CASE("gathers that are never released are refused beyond a bound") {
  // Once the daemon kept all of them.
  DaemonFixture daemon;
  Attack attack(daemon);
  REQUIRE(attack.segment != 0);
  auto entry = allreduceEntry(0, 0);
  entry.kind = static_cast<uint8_t>(rueda::shm::OpKind::kAllgather);
  uint64_t refused = 0;
  for (uint32_t i = 0; i < rueda::shm::kMaxInFlight + 10; ++i) {
    entry.requestId = i + 1;
    attack.client.submit(entry, {0}, "g");
    const auto done = attack.client.completion();
    REQUIRE(done.has_value());
    if (done->code == static_cast<int32_t>(Code::kResourceExhausted)) ++refused;
  }
  CHECK(refused == 10);
}

TEST_CASE("rows fetched into memory that they do not fit into end the session") {
  DaemonFixture daemon;
  Attack attack(daemon);
  REQUIRE(attack.segment != 0);
  auto gather = allreduceEntry(1, attack.segment);
  gather.kind = static_cast<uint8_t>(rueda::shm::OpKind::kAllgather);
  attack.client.submit(gather, {512}, "g");
  REQUIRE(attack.client.completion().has_value());
  auto fetch = allreduceEntry(2, attack.segment);
  fetch.type = static_cast<uint8_t>(EntryType::kFetch);
  fetch.extra = 1;
  SECTION("to the last byte they are copied") {
    fetch.outOffset = kSegmentBytes - 2048;
    attack.client.submit(fetch, {}, "");
    const auto done = attack.client.completion();
    REQUIRE(done.has_value());
    CHECK(done->code == 0);
  }
  SECTION("onto themselves, shifted, they are copied without harm to the daemon") {
    fetch.outOffset = 8;
    attack.client.submit(fetch, {}, "");
    CHECK(attack.client.completion().has_value());
  }
  SECTION("one byte more ends the session") {
    // Once the daemon went on with the session that it had just freed.
    fetch.outOffset = kSegmentBytes - 2047;
    attack.client.submit(fetch, {}, "");
    CHECK_THAT(attack.client.noticeText(MessageType::kRefused),
               Catch::Contains("gathered rows leave the segment"));
  }
  SECTION("of a gather that is not one it is an error of that request") {
    fetch.extra = 99;
    attack.client.submit(fetch, {}, "");
    const auto done = attack.client.completion();
    REQUIRE(done.has_value());
    CHECK(done->code == static_cast<int32_t>(Code::kInvalidArgument));
  }
}

TEST_CASE("releases and wait notes of nothing are ignored") {
  DaemonFixture daemon;
  Attack attack(daemon);
  REQUIRE(attack.segment != 0);
  for (const auto type : {EntryType::kRelease, EntryType::kWaitEnd, EntryType::kWaitRequest,
                          EntryType::kWaitDirect}) {
    auto entry = allreduceEntry(0xffffffffffffffff, 0);
    entry.type = static_cast<uint8_t>(type);
    attack.client.submit(entry, {1}, "nothing");
  }
  attack.client.submit(allreduceEntry(1, attack.segment), {16}, "x");
  const auto done = attack.client.completion();
  REQUIRE(done.has_value());
  CHECK(done->requestId == 1);
  CHECK(done->code == 0);
}

TEST_CASE("messages out of turn end the connection with a reason") {
  DaemonFixture daemon;
  Bystander bystander(daemon);
  HostileClient hostile(daemon.socket());
  SECTION("something else than a hello") {
    REQUIRE(
        hostile.send(rueda::shm::makeMessage<SegmentMessage>(MessageType::kAllocSegment)).isOk());
    CHECK(hostile.noticeText(MessageType::kRefused) == "the first message is no hello");
  }
  SECTION("bytes of no message") {
    REQUIRE(::send(hostile.socket(), "GET / HTTP/1.1", 14, 0) == 14);
    CHECK(hostile.noticeText(MessageType::kRefused) == "message of 14 bytes has a wrong header");
  }
  SECTION("a second hello") {
    REQUIRE(hostile.join(0, 2));
    REQUIRE(hostile.send(HostileClient::hello(0, 2)).isOk());
    CHECK(hostile.noticeText(MessageType::kRefused) == "message type 1 is not for the daemon");
  }
  SECTION("what only a daemon says") {
    REQUIRE(hostile.join(0, 2));
    REQUIRE(
        hostile.send(rueda::shm::makeMessage<rueda::shm::Notice>(MessageType::kJobFailed)).isOk());
    CHECK(hostile.noticeText(MessageType::kRefused) == "message type 10 is not for the daemon");
  }
  SECTION("descriptors") {
    REQUIRE(hostile.join(0, 2));
    const auto message = rueda::shm::makeMessage<SegmentMessage>(MessageType::kAllocSegment);
    const int fd = hostile.socket();
    // Since Linux 6.16 the kernel keeps them off the daemon, and the client goes on.
    if (!rueda::shm::sendPacket(hostile.socket(), &message, sizeof message, &fd, 1).isOk()) {
      CHECK(hostile.allocate(4096) != 0);
      return;
    }
    CHECK(hostile.noticeText(MessageType::kRefused) == "descriptors are only sent by the daemon");
  }
  CHECK(hostile.isClosed());
  CHECK(bystander.isWell());
}

TEST_CASE("segments of impossible sizes are refused") {
  DaemonSetup setup;
  setup.engine.quota.bytesPerUid = 64 << 10;
  DaemonFixture daemon(setup);
  Attack attack(daemon);
  REQUIRE(attack.segment != 0);
  auto request = rueda::shm::makeMessage<SegmentMessage>(MessageType::kAllocSegment);
  SECTION("not whole pages: the session ends") {
    request.bytes = GENERATE(0, 1, 4095, 4097);
    REQUIRE(attack.client.send(request).isOk());
    CHECK_THAT(attack.client.noticeText(MessageType::kRefused),
               Catch::Contains("is not whole pages"));
  }
  SECTION("more than the quota, or than there is: no segment, and the session goes on") {
    request.bytes = GENERATE(uint64_t{64} << 10, uint64_t{1} << 62);
    REQUIRE(attack.client.send(request).isOk());
    const auto packet = attack.client.receive();
    REQUIRE(packet.has_value());
    const auto* grant = packet->as<SegmentMessage>(MessageType::kSegmentGranted);
    REQUIRE(grant != nullptr);
    CHECK(grant->code == static_cast<int32_t>(Code::kResourceExhausted));
    CHECK(packet->fds.empty());
    CHECK(attack.client.allocate(4096) != 0);
  }
  SECTION("one that is not this rank's is shown to nobody") {
    request.header.type = static_cast<uint16_t>(MessageType::kSegmentReady);
    request.segment = 42;
    REQUIRE(attack.client.send(request).isOk());
    CHECK_THAT(attack.client.noticeText(MessageType::kRefused),
               Catch::Contains("segment 42 is not this rank's"));
  }
}

TEST_CASE("a job has a bound on its segments") {
  DaemonFixture daemon;
  Attack attack(daemon);
  REQUIRE(attack.segment == 1);
  for (uint32_t id = 2; id <= rueda::shm::kMaxSegments; ++id)
    REQUIRE(attack.client.allocate(4096) == id);
  CHECK(attack.client.allocate(4096) == 0);
}

TEST_CASE("a client that says nothing is dropped in time") {
  DaemonSetup setup;
  setup.engine.lobby.handshakeTimeoutMs = 50;
  DaemonFixture daemon(setup);
  HostileClient silent(daemon.socket());
  CHECK(silent.noticeText(MessageType::kRefused) == "no complete hello within 50 ms");
  CHECK(silent.isClosed());
}

TEST_CASE("clients, jobs and their number are limited") {
  DaemonSetup setup;
  setup.engine.quota.sessions = 4;
  setup.engine.quota.sessionsPerUid = 3;
  setup.engine.quota.jobsPerUid = 2;
  DaemonFixture daemon(setup);
  HostileClient first(daemon.socket());
  HostileClient second(daemon.socket());
  HostileClient third(daemon.socket());
  REQUIRE(first.join(0, 1, "one"));
  REQUIRE(second.join(0, 1, "two"));
  REQUIRE(third.send(HostileClient::hello(0, 1, "three")).isOk());
  CHECK_THAT(third.noticeText(MessageType::kRefused), Catch::Contains("jobs of uid"));
  HostileClient fourth(daemon.socket());
  HostileClient fifth(daemon.socket());
  REQUIRE(fourth.send(HostileClient::hello(0, 2, "one")).isOk());  // Refused for its size.
  CHECK_THAT(fifth.noticeText(MessageType::kRefused), Catch::Contains("clients of uid"));
}

TEST_CASE("a flood of connections that are closed at once leaves nothing behind") {
  DaemonFixture daemon;
  Bystander bystander(daemon);
  const uint64_t before = daemon.state().openFds;
  for (int i = 0; i < 200; ++i) {
    HostileClient client(daemon.socket());
    if (i % 3 == 0) (void)client.send(HostileClient::hello(0, 2, std::to_string(i)));
  }
  CHECK(daemon.eventually(
      [&](const StateView& view) { return view.jobs.size() == 1 && view.openFds == before; }));
  CHECK(bystander.isWell());
}
