// SPDX-License-Identifier: Apache-2.0
#pragma once

// The border functions, fed with arbitrary bytes, and what must hold of whatever they accept. Used
// by the fuzz targets, by border_functions_test and by the stress tests. Each call stands alone;
// any thread.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/submit/intake.h"

namespace rueda::fuzz {

// The one segment that the lookup of checkIntake knows. It maps nothing: a border function that
// touches payload crashes.
constexpr uint32_t kSegment = 7;
constexpr uint64_t kSegmentBytes = 4096;
// Rank 1 of 3, with that segment.
submit::Origin origin();

// Bytes in front of the slots of an intake input: uint32 index of the first slot, which may be
// anything, and uint32 by how much the producer's index is ahead of it.
constexpr size_t kIntakeHeaderBytes = 8;

// Reads a ring as the engine does: `data` is a header and slots, the last of which may be cut
// short. "" or what an accepted submission violates; *parsed counts those.
std::string checkIntake(const uint8_t* data, size_t size, int* parsed = nullptr);

// What a parsed submission violates; "" if nothing.
std::string checkItem(const submit::Item& item);

// Reads a first packet: `data` is a byte with the number of descriptors, then the packet, whose
// magic is not looked at: receivePacket() has. "" or what an accepted greeting violates; *accepted
// is 1 if it was.
std::string checkGreeting(const uint8_t* data, size_t size, int* accepted = nullptr);

}  // namespace rueda::fuzz
