// SPDX-License-Identifier: Apache-2.0
#pragma once

// Messages on the Unix socket (SOCK_SEQPACKET: one message a packet, descriptors beside it). Fixed
// size, little-endian, text NUL-terminated within its field. The first message of a client is
// Hello.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shm/layout.h"

namespace rueda::shm {

constexpr uint32_t kMessageMagic = 0x52554544;  // "RUED"
constexpr uint16_t kProtocolMin = 3;            // 3: a board for each process set.
constexpr uint16_t kProtocolMax = 3;
constexpr uint32_t kMaxMessageBytes = 2048;
constexpr uint32_t kMaxSegments = 1024;  // Tensor segments of one job.

enum class MessageType : uint16_t {
  kHello = 1,           // client → daemon
  kWelcome = 2,         // daemon → client, 3 descriptors: control segment, eventfd, boards
  kRefused = 3,         // daemon → client; the connection ends
  kJobReady = 4,        // all ranks of this host are here
  kAllocSegment = 5,    // client → daemon
  kSegmentGranted = 6,  // + 1 descriptor
  kSegmentReady = 7,    // client → daemon: "I have touched its pages, show it to the others"
  kPeerSegment = 8,     // + 1 descriptor: a segment of another rank of the job
  kGoodbye = 9,         // client → daemon: leaves on purpose
  kJobFailed = 10,      // daemon → client: every operation of the job fails with this
  kFormingNotice = 11,  // daemon → client: who is still missing
};

struct MessageHeader {
  uint32_t magic;
  uint16_t type;
  uint16_t bytes;  // Of the whole message.
};

// The most that a hello may ask for; a number beyond is refused, with its name.
constexpr int64_t kMaxFusionBytes = int64_t{1} << 40;
constexpr int64_t kMaxCycleMicros = 1000 * 1000;
constexpr int64_t kMaxStallMs = int64_t{30} * 24 * 3600 * 1000;
constexpr int32_t kMaxLookBack = 256;                // Each operation looks at so many others.
constexpr uint32_t kMaxStartTimeoutMs = UINT32_MAX;  // At least 1.

// What a job wants of the daemon; rank 0's count. 0: as the operator has set it, -1: off.
struct Knobs {
  int64_t fusionBytes;      // Largest fused operation, of one rank.
  int64_t cycleMicros;      // Operations are collected for that long.
  int64_t stallWarnMs;      // After that long the log says who is waited for.
  int64_t stallShutdownMs;  // After that long the job fails.
  int32_t groupsApart;      // 1: groups fuse with their own members only; -1: with others too.
  int32_t fusionLookBack;   // Operations back that one may look for another to join; -1: one.
};
static_assert(sizeof(Knobs) == 40);

struct Hello {
  MessageHeader header;
  uint16_t protocolMin, protocolMax;  // Here in every version.
  int32_t rank, size;
  int32_t localRank, localSize;
  uint32_t startTimeoutMs;
  uint32_t isolated;
  char job[128];
  char hostname[256];
  uint32_t reserved;
  Knobs knobs;
};
static_assert(offsetof(Hello, protocolMin) == 8 && offsetof(Hello, knobs) == 424);

struct Welcome {
  MessageHeader header;
  uint16_t protocol;
  uint16_t reserved;
  uint32_t spareCores;  // 1: ranks need not share cores: spin by pausing, not by yielding.
  uint32_t spinMicros;  // How long a waiter spins before it sleeps.
  uint32_t
      sliceFromBytes;  // From this size on every rank sums a slice; below, the last arriver all.
  uint32_t directEnabled;  // 0: isolated job or one rank: everything goes through the daemon.
  uint32_t reserved2;
  char daemon[64];  // Version text.
};

struct Notice {  // kRefused, kJobFailed, kFormingNotice
  MessageHeader header;
  int32_t code;  // Code
  int32_t rank;  // Rank concerned, or -1.
  char text[1024];
};

struct SegmentMessage {  // kAllocSegment, kSegmentGranted, kSegmentReady, kPeerSegment
  MessageHeader header;
  int32_t code;  // Of a grant: Code; on an error no descriptor comes along.
  uint32_t segment;
  int32_t rank;  // Owner.
  uint32_t reserved;
  uint64_t bytes;
  char text[512];
};

struct PlainMessage {  // kJobReady, kGoodbye
  MessageHeader header;
};

static_assert(sizeof(Hello) <= kMaxMessageBytes && sizeof(Notice) <= kMaxMessageBytes);
static_assert(std::is_trivially_copyable_v<Hello> && std::is_trivially_copyable_v<Notice>);

// A zeroed message with its header filled.
template <typename T>
T makeMessage(MessageType type) {
  static_assert(std::is_trivially_copyable_v<T>);
  T message{};
  message.header = {kMessageMagic, static_cast<uint16_t>(type), static_cast<uint16_t>(sizeof(T))};
  return message;
}

}  // namespace rueda::shm
