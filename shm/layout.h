// SPDX-License-Identifier: Apache-2.0
#pragma once

// Every struct of a client's control segment, byte for byte (README.md has the tables). Readers
// copy an entry once, check the copy, and never look at the shared bytes again.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "shm/doorbell.h"

namespace rueda::shm {

constexpr uint32_t kMaxRanks = 64;         // Ranks of one job on one host.
constexpr uint32_t kMaxNameBytes = 1024;   // A tensor's name.
constexpr uint32_t kMaxReasonBytes = 200;  // Why a rank cannot take part.
constexpr uint32_t kMaxDims = 64;          // What torch allows.
constexpr uint32_t kMaxInFlight = 16384;   // Operations of one rank without an outcome.
constexpr uint32_t kRingSlots = 2048;      // Of each ring; a power of two.
constexpr uint32_t kEntryBytes = 128;      // Two cache lines, which are fetched together.
constexpr uint64_t kMaxElements = uint64_t{1} << 48;  // × 16 bytes × ranks is far from 2^64.

enum class EntryType : uint8_t {
  kTail = 1,         // Continues the tail of the entry before it.
  kSubmit = 2,       // An operation.
  kWaitDirect = 3,   // "I sleep in direct operation `directIndex`", with its description.
  kWaitRequest = 4,  // "I sleep until request `requestId`, of that name, has an outcome."
  kWaitEnd = 5,      // The sleep of the last wait note of this thread is over.
  kRelease = 6,      // "I have copied the rows of gather `requestId`."
  kFetch = 7,        // "Copy the rows of gather `extra` to outSegment, outOffset."
  kLeaveSet = 8,     // "I am through with the board of `processSet`, which was removed."
};

// Bits of SubmissionEntry::flags.
constexpr uint8_t kFlagFallback = 1;   // Came from the direct path at `directIndex`.
constexpr uint8_t kFlagBlocking = 2;   // The submitting thread waits for the outcome at once.
constexpr uint8_t kFlagThreads = 4;    // More than one thread of the rank has written here.
constexpr uint8_t kFlagAmong = 8;      // One of several that the rank has not waited for.
constexpr uint8_t kFlagLeftOut = 16;   // Of a join: others go on as though the rank were not there.
constexpr uint8_t kFlagTimed = 32;     // Its outcome comes with times (op_times.h).
constexpr uint8_t kFlagStamped = 64;   // The tail has the moment of its submission.
constexpr uint8_t kFlagRefused = 128;  // This rank cannot take part; the segments' fields say why.

// One slot of the submission ring. The tail holds ndim int64 dimensions, then `extra` int64 numbers
// (an alltoall's splits; the ranks of a process set to add, the id of one to remove), an int64 if
// kFlagStamped, the name, the reason if kFlagRefused, and goes on in kTail entries (TailEntry).
struct SubmissionEntry {
  uint8_t type;          //   0  EntryType
  uint8_t kind;          //   1  OpKind
  uint8_t dtype;         //   2  DType
  uint8_t reduceOp;      //   3  ReduceOp
  uint16_t nameBytes;    //   4
  uint8_t ndim;          //   6
  uint8_t flags;         //   7
  uint64_t requestId;    //   8  chosen by the client, never reused in a session
  uint32_t inSegment;    //  16  with kFlagRefused: Code
  uint32_t outSegment;   //  20  with kFlagRefused: bytes of the reason
  uint64_t inOffset;     //  24
  uint64_t outOffset;    //  32
  uint64_t extra;        //  40  kFetch: requestId of the gather; else how many numbers the tail has
  double prescale;       //  48
  double postscale;      //  56
  int32_t root;          //  64  broadcast only
  uint32_t directIndex;  //  68
  uint32_t groupSize;    //  72  operations of this one's group; 0 or 1: none
  uint32_t groupId;      //  76  equal for the operations of a group, chosen by the client
  uint32_t processSet;   //  80  0: all ranks of the job
  int32_t priority;      //  84  of what is complete at one moment the highest runs first
  char tail[40];         //  88
};
static_assert(sizeof(SubmissionEntry) == kEntryBytes && offsetof(SubmissionEntry, tail) == 88);
static_assert(std::is_trivially_copyable_v<SubmissionEntry>);
static_assert(offsetof(SubmissionEntry, requestId) == 8);
static_assert(offsetof(SubmissionEntry, inOffset) == 24);
static_assert(offsetof(SubmissionEntry, prescale) == 48);

struct TailEntry {
  uint8_t type;         // 0  EntryType::kTail
  uint8_t reserved[7];  // 1
  char data[120];       // 8
};
static_assert(sizeof(TailEntry) == kEntryBytes && offsetof(TailEntry, data) == 8);

// One slot of the completion ring. The tail holds gatherRanks RowBlock structs, then textBytes of
// error text, then if timedRanks an OpTimes and as many RankTime, and goes on in TailEntry slots.
struct CompletionEntry {
  uint8_t type;             //   0  CompletionType
  uint8_t timedRanks;       //   1  ranks whose times follow; 0: not timed
  uint8_t reserved[2];      //   2
  int32_t code;             //   4  Code
  uint64_t requestId;       //   8
  uint32_t textBytes;       //  16  at most kMaxTextBytes
  uint32_t gatherRanks;     //  20  of a gather: ranks of the process set; else 0
  uint32_t directIndex;     //  24  where the direct path goes on, if hasDirectIndex
  uint32_t hasDirectIndex;  //  28
  int64_t value;            //  32  join: the rank that joined last; add set: its id
  char tail[88];            //  40
};
static_assert(sizeof(CompletionEntry) == kEntryBytes);
static_assert(offsetof(CompletionEntry, requestId) == 8);
static_assert(offsetof(CompletionEntry, tail) == 40);

enum class CompletionType : uint8_t {
  kTail = 1,
  kOutcome = 2,   // The request ended.
  kReleased = 3,  // All ranks have copied the rows of gather `requestId`: its input is free.
};
constexpr uint32_t kMaxTextBytes = 8192;

// Where one rank's rows of an allgather lie.
struct RowBlock {
  uint32_t segment;
  uint32_t reserved;
  uint64_t offset;
  int64_t firstDim;
};
static_assert(sizeof(RowBlock) == 24 && offsetof(RowBlock, offset) == 8);
static_assert(offsetof(RowBlock, firstDim) == 16);

// Of ControlHeader::daemonAsleep: when a client writes the eventfd after a submission.
constexpr uint32_t kAwake = 0;          // Never: the daemon looks at the ring.
constexpr uint32_t kAsleep = 1;         // If other ranks may be waiting for it (StartLine).
constexpr uint32_t kAsleepWanting = 2;  // Always: some operation waits for this rank.
constexpr uint32_t kNapping = 3;        // For what a thread waits for: the daemon soon looks again.

// First page of a control segment. One writer a word, but for daemonAsleep.
struct ControlHeader {
  alignas(64) std::atomic<uint32_t> submitTail;    //   0  client: next slot it will write
  alignas(64) std::atomic<uint32_t> submitHead;    //  64  daemon: next slot it will read
  alignas(64) std::atomic<uint32_t> completeTail;  // 128  daemon
  alignas(64) std::atomic<uint32_t> completeHead;  // 192  client
  // 256  daemon sets how it sleeps; the client that writes the eventfd takes it back to kAwake
  alignas(64) std::atomic<uint32_t> daemonAsleep;
  alignas(64) std::atomic<uint32_t> completionBlocked;  // 320  daemon: 1 = ring full, tell me
  Bell completionBell;                                  // 384  daemon rings, client threads sleep
};
static_assert(std::is_standard_layout_v<ControlHeader>);
static_assert(offsetof(ControlHeader, daemonAsleep) == 256);
static_assert(offsetof(ControlHeader, completionBell) == 384);

constexpr uint64_t kControlHeaderBytes = 4096;
constexpr uint64_t kSubmissionOffset = kControlHeaderBytes;
constexpr uint64_t kCompletionOffset = kSubmissionOffset + uint64_t{kRingSlots} * kEntryBytes;
constexpr uint64_t kControlBytes = kCompletionOffset + uint64_t{kRingSlots} * kEntryBytes;
static_assert(sizeof(ControlHeader) <= kControlHeaderBytes && (kRingSlots & (kRingSlots - 1)) == 0);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace rueda::shm
