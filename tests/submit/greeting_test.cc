// SPDX-License-Identifier: Apache-2.0
#include "daemon/submit/greeting.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <limits>

namespace {

using rueda::shm::Code;
using rueda::shm::Hello;
using rueda::shm::MessageType;
using rueda::shm::Packet;
using rueda::shm::Result;
using rueda::submit::Greeting;
using rueda::submit::parseGreeting;

Hello valid() {
  Hello hello = rueda::shm::makeMessage<Hello>(MessageType::kHello);
  hello.protocolMin = rueda::shm::kProtocolMin;
  hello.protocolMax = rueda::shm::kProtocolMax;
  hello.rank = hello.localRank = 1;
  hello.size = hello.localSize = 4;
  hello.startTimeoutMs = 5000;
  std::strcpy(hello.job, "train");
  std::strcpy(hello.hostname, "node7");
  return hello;
}

template <typename T>
Packet packetOf(const T& message) {
  Packet packet;
  std::memcpy(packet.data.data(), &message, sizeof message);
  packet.bytes = sizeof message;
  return packet;
}

Result<Greeting> parseWith(const std::function<void(Hello*)>& change) {
  Hello hello = valid();
  change(&hello);
  return parseGreeting(packetOf(hello));
}

}  // namespace

TEST_CASE("a hello becomes a greeting with all of its fields") {
  const auto got = parseWith([](Hello* hello) { hello->isolated = 1; });
  REQUIRE(got.isOk());
  const Greeting& greeting = got.value();
  CHECK(greeting.protocol == rueda::shm::kProtocolMax);
  CHECK(greeting.job == "train");
  CHECK(greeting.hostname == "node7");
  CHECK(greeting.rank == 1);
  CHECK(greeting.size == 4);
  CHECK(greeting.localRank == 1);
  CHECK(greeting.localSize == 4);
  CHECK(greeting.startTimeoutMs == 5000);
  CHECK(greeting.isolated);
  CHECK_FALSE(parseGreeting(packetOf(valid())).value().isolated);
}

TEST_CASE("anything else first is no hello") {
  CHECK(parseGreeting(packetOf(rueda::shm::makeMessage<rueda::shm::PlainMessage>(
                          MessageType::kHello)))  // Its type, not its size.
            .status()
            .message() == "the first message is no hello");
  CHECK(parseGreeting(packetOf(rueda::shm::makeMessage<Hello>(MessageType::kWelcome)))
            .status()
            .code() == Code::kProtocolError);
  CHECK(parseGreeting(Packet{}).status().code() == Code::kProtocolError);
}

TEST_CASE("a hello brings no descriptors") {
  Packet packet = packetOf(valid());
  packet.fds.emplace_back();
  CHECK(parseGreeting(packet).status().message() == "a hello carries no descriptors");
}

TEST_CASE("the highest protocol that both know is spoken, none is a refusal naming both") {
  const auto speaks = [](uint16_t low, uint16_t high) {
    return parseWith([=](Hello* hello) {
      hello->protocolMin = low;
      hello->protocolMax = high;
    });
  };
  CHECK(speaks(0, 0xffff).value().protocol == 3);
  CHECK(speaks(3, 3).value().protocol == 3);
  CHECK(speaks(4, 5).status().message() == "client speaks protocol 4 to 5, this daemon 3 to 3");
  CHECK(speaks(0, 1).status().message() == "client speaks protocol 0 to 1, this daemon 3 to 3");
  CHECK(speaks(0, 0).status().code() == Code::kProtocolError);
}

TEST_CASE("a hello of another version and size is told the versions, not that it is none") {
  Hello hello = valid();
  hello.protocolMin = hello.protocolMax = 1;
  Packet packet = packetOf(hello);
  packet.bytes = 420;  // Of version 1.
  CHECK(parseGreeting(packet).status().message() ==
        "client speaks protocol 1 to 1, this daemon 3 to 3");
  packet.bytes = 11;
  CHECK(parseGreeting(packet).status().message() == "the first message is no hello");
}

// Once they became the nearest that was allowed, and nobody was told.
TEST_CASE("numbers of a hello are taken up to their bounds, and refused with them beyond") {
  struct Variant {
    void (*set)(Hello*, int64_t);
    int64_t least, most;
    std::string name;
  };
  const Variant variants[] = {
      {[](Hello* h, int64_t v) { h->knobs.fusionBytes = v; }, -1, int64_t{1} << 40,
       "fusion threshold in bytes"},
      {[](Hello* h, int64_t v) { h->knobs.cycleMicros = v; }, -1, 1000000, "cycle time in us"},
      {[](Hello* h, int64_t v) { h->knobs.stallWarnMs = v; }, -1, 2592000000,
       "stall check time in ms"},
      {[](Hello* h, int64_t v) { h->knobs.stallShutdownMs = v; }, -1, 2592000000,
       "stall shutdown time in ms"},
      {[](Hello* h, int64_t v) { h->knobs.groupsApart = static_cast<int32_t>(v); }, -1, 1,
       "choice of groups apart"},
      {[](Hello* h, int64_t v) { h->knobs.fusionLookBack = static_cast<int32_t>(v); }, -1, 256,
       "fusion look-back"},
  };
  for (const Variant& variant : variants) {
    const auto parse = [&variant](int64_t value) {
      return parseWith([&](Hello* hello) { variant.set(hello, value); }).status();
    };
    CAPTURE(variant.name);
    CHECK(parse(variant.least).isOk());
    CHECK(parse(variant.most).isOk());
    for (const int64_t wrong : {variant.least - 1, variant.most + 1}) {
      CHECK(parse(wrong).code() == Code::kInvalidArgument);
      CHECK(parse(wrong).message() == "a " + variant.name + " of " + std::to_string(wrong) +
                                          ": it may be from " + std::to_string(variant.least) +
                                          " to " + std::to_string(variant.most));
    }
  }
}

TEST_CASE("impossible places in a job are refused with the numbers") {
  struct Variant {
    int32_t rank, size, localRank, localSize;
    Code code;
  };
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  const Variant variants[] = {
      {-1, 4, 0, 4, Code::kInvalidArgument},
      {4, 4, 0, 4, Code::kInvalidArgument},
      {0, 0, 0, 0, Code::kInvalidArgument},
      {0, -4, 0, -4, Code::kInvalidArgument},
      {0, 4, 4, 4, Code::kInvalidArgument},
      {0, 4, -1, 4, Code::kInvalidArgument},
      {0, 65, 0, 65, Code::kInvalidArgument},
      {kMost - 1, kMost, 0, kMost, Code::kInvalidArgument},
      {kLeast, kLeast, kLeast, kLeast, Code::kInvalidArgument},
      {0, 4, 0, 2, Code::kUnimplemented},
      {63, 64, 63, 64, Code::kOk},
      {0, 1, 0, 1, Code::kOk},
  };
  for (const Variant& v : variants) {
    CAPTURE(v.rank, v.size, v.localRank, v.localSize);
    const auto got = parseWith([&v](Hello* hello) {
      hello->rank = v.rank;
      hello->size = v.size;
      hello->localRank = v.localRank;
      hello->localSize = v.localSize;
    });
    CHECK(got.status().code() == v.code);
  }
  CHECK(parseWith([](Hello* hello) { hello->rank = 4; }).status().message() ==
        "impossible place in the job: rank 4 of 4, local rank 1 of 4");
}

TEST_CASE("a job id has 1 to 127 bytes, a host name up to 255, with their ends in the field") {
  CHECK_FALSE(parseWith([](Hello* hello) { hello->job[0] = '\0'; }).isOk());
  CHECK(parseWith([](Hello* hello) { hello->hostname[0] = '\0'; }).isOk());
  CHECK_FALSE(
      parseWith([](Hello* hello) { std::memset(hello->job, 'j', sizeof hello->job); }).isOk());
  CHECK_FALSE(parseWith([](Hello* hello) {
                std::memset(hello->hostname, 'h', sizeof hello->hostname);
              }).isOk());
  const auto longest = parseWith([](Hello* hello) {
    std::memset(hello->job, 'j', sizeof hello->job - 1);
    std::memset(hello->hostname, 'h', sizeof hello->hostname - 1);
  });
  REQUIRE(longest.isOk());
  CHECK(longest.value().job.size() == 127);
  CHECK(longest.value().hostname.size() == 255);
}

TEST_CASE("patience for the start may be long, but there is some") {
  const auto patience = [](uint32_t ms) {
    return parseWith([ms](Hello* hello) { hello->startTimeoutMs = ms; });
  };
  CHECK(patience(0).status().message() ==
        "a start timeout in ms of 0: it may be from 1 to 4294967295");
  CHECK(patience(1).value().startTimeoutMs == 1);
  CHECK(patience(0xffffffff).value().startTimeoutMs == 0xffffffff);
}
