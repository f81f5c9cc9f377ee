// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a rank says of its operation on a board: behind the word of its PostLine, and read by all
// ranks of the set, by the daemon never. Values.

#include <cstddef>
#include <cstdint>

namespace rueda::shm {

constexpr uint32_t kInlineBytes = 56;
constexpr uint32_t kCopyBytes = 2048;
constexpr uint32_t kRowCopyBytes = 4096;  // Of rows, which nobody has to sum from there.

// What a rank says of its operation: either the payload itself or where it lies.
struct DirectPayload {
  uint64_t inOffset;
  uint64_t outOffset;
  uint32_t inSegment;
  uint32_t outSegment;
  uint32_t staged;  // 1: memory is foreign; blocks go through the rank's staging segment.
  uint32_t reserved;
};
static_assert(sizeof(DirectPayload) == 32 && offsetof(DirectPayload, outOffset) == 8);
static_assert(offsetof(DirectPayload, inSegment) == 16 &&
              offsetof(DirectPayload, outSegment) == 20);
static_assert(offsetof(DirectPayload, staged) == 24);

// Where a rank's rows lie, and where it wants those of all. kLater: at a place in a segment that
// its PhaseLine will say. kStaging, kForeign: in memory that only its rank can reach.
enum class RowsFrom : uint8_t { kCopySlot = 0, kSegment = 1, kStaging = 2 };
enum class RowsTo : uint8_t { kSegment = 0, kLater = 1, kForeign = 2 };

// What a rank says of its allgather or alltoall.
struct RowPayload {
  uint64_t rows;  // First dimension of what it gives; all else of the shape is in the signature.
  uint64_t inOffset;
  uint64_t outOffset;
  uint64_t outRoom;  // Bytes. A result that is longer is not written.
  uint32_t inSegment;
  uint32_t outSegment;
  RowsFrom from;
  RowsTo to;
  uint8_t hasSplits;  // 1: CopySlot::splits says how many rows each rank gets.
  uint8_t reserved[5];
};
static_assert(sizeof(RowPayload) == 48 && offsetof(RowPayload, inOffset) == 8);
static_assert(offsetof(RowPayload, outOffset) == 16 && offsetof(RowPayload, outRoom) == 24);
static_assert(offsetof(RowPayload, inSegment) == 32 && offsetof(RowPayload, outSegment) == 36);
static_assert(offsetof(RowPayload, from) == 40 && offsetof(RowPayload, to) == 41);
static_assert(offsetof(RowPayload, hasSplits) == 42);
static_assert(sizeof(DirectPayload) <= kInlineBytes && sizeof(RowPayload) <= kInlineBytes);

// A payload on a line: kInlineBytes, zeros where it is shorter, and 8 more that stay zero, so that
// it is whole vectors of every instruction set.
struct InlineVectors {
  char bytes[64];
};
static_assert(sizeof(InlineVectors) == 64);

}  // namespace rueda::shm
