// SPDX-License-Identifier: Apache-2.0

// Facts of the byte-level contract: a change here breaks clients of another version.
#include "shm/layout.h"

#include <catch2/catch.hpp>
#include <vector>

#include "shm/board.h"
#include "shm/handshake.h"

namespace {

using namespace rueda::shm;  // NOLINT: the whole contract is under test.

}  // namespace

TEST_CASE("ring entries are where they have always been") {
  CHECK(offsetof(SubmissionEntry, type) == 0);
  CHECK(offsetof(SubmissionEntry, nameBytes) == 4);
  CHECK(offsetof(SubmissionEntry, ndim) == 6);
  CHECK(offsetof(SubmissionEntry, flags) == 7);
  CHECK(offsetof(SubmissionEntry, inSegment) == 16);
  CHECK(offsetof(SubmissionEntry, outOffset) == 32);
  CHECK(offsetof(SubmissionEntry, extra) == 40);
  CHECK(offsetof(SubmissionEntry, postscale) == 56);
  CHECK(offsetof(SubmissionEntry, directIndex) == 68);
  CHECK(offsetof(SubmissionEntry, groupSize) == 72);
  CHECK(offsetof(SubmissionEntry, groupId) == 76);
  CHECK(offsetof(CompletionEntry, code) == 4);
  CHECK(offsetof(CompletionEntry, textBytes) == 16);
  CHECK(offsetof(CompletionEntry, gatherRanks) == 20);
  CHECK(offsetof(CompletionEntry, hasDirectIndex) == 28);
  CHECK(offsetof(TailEntry, data) == 8);
  CHECK(offsetof(RowBlock, firstDim) == 16);
}

TEST_CASE("the words of a control segment have lines of their own, the rings follow") {
  CHECK(offsetof(ControlHeader, submitTail) == 0);
  CHECK(offsetof(ControlHeader, completeTail) == 128);
  CHECK(offsetof(ControlHeader, completeHead) == 192);
  CHECK(offsetof(ControlHeader, completionBlocked) == 320);
  CHECK(kSubmissionOffset == 4096);
  CHECK(kCompletionOffset == 4096 + 2048 * 128);
  CHECK(kControlBytes == 4096 + 2 * 2048 * 128);
  CHECK(kControlBytes % 4096 == 0);
}

TEST_CASE("no tensor's bytes over all ranks come near 2^64") {
  CHECK(kMaxElements * 8 < (uint64_t{1} << 63) / kMaxRanks * 4);
}

TEST_CASE("messages keep their numbers and sizes") {
  CHECK(static_cast<int>(MessageType::kHello) == 1);
  CHECK(static_cast<int>(MessageType::kWelcome) == 2);
  CHECK(static_cast<int>(MessageType::kRefused) == 3);
  CHECK(static_cast<int>(MessageType::kJobReady) == 4);
  CHECK(static_cast<int>(MessageType::kAllocSegment) == 5);
  CHECK(static_cast<int>(MessageType::kSegmentGranted) == 6);
  CHECK(static_cast<int>(MessageType::kSegmentReady) == 7);
  CHECK(static_cast<int>(MessageType::kPeerSegment) == 8);
  CHECK(static_cast<int>(MessageType::kGoodbye) == 9);
  CHECK(static_cast<int>(MessageType::kJobFailed) == 10);
  CHECK(static_cast<int>(MessageType::kFormingNotice) == 11);
  CHECK(sizeof(MessageHeader) == 8);
  CHECK(sizeof(Hello) == 464);
  CHECK(sizeof(Notice) == 1040);
  CHECK(sizeof(SegmentMessage) == 544);
  CHECK(sizeof(PlainMessage) == 8);
  CHECK(offsetof(Hello, job) == 36);
}

TEST_CASE("a made message carries its magic, type and size, and is zero otherwise") {
  const auto notice = makeMessage<Notice>(MessageType::kRefused);
  CHECK(notice.header.magic == 0x52554544);
  CHECK(notice.header.type == 3);
  CHECK(notice.header.bytes == sizeof(Notice));
  CHECK(notice.code == 0);
  CHECK(notice.text[0] == 0);
}

TEST_CASE("indices of the board are compared across their wrap") {
  CHECK(indexAhead(5, 3) == 2);
  CHECK(indexAhead(3, 5) == -2);
  CHECK(indexAhead(0, 0xffffffff) == 1);
  CHECK(indexAhead(0xffffffff, 1) == -2);
  CHECK(indexAhead(7, 7) == 0);
  const uint64_t word = tagged(0xfedcba98, 0x76543210);
  CHECK(tagIndex(word) == 0xfedcba98);
  CHECK(tagLow(word) == 0x76543210);
}

TEST_CASE("the board holds every rank twice and is whole pages") {
  CHECK(kBoardBytes % 4096 == 0);
  CHECK(sizeof(Board) <= kBoardBytes);
  CHECK(sizeof(Board::posts) == 2 * 64 * 128);
}

TEST_CASE("the boards of process sets lie one behind the other") {
  std::vector<char> boards(kBoardsBytes);
  for (uint32_t set = 0; set < kBoards; ++set)
    CHECK(reinterpret_cast<char*>(boardAt(boards.data(), set)) ==
          boards.data() + set * kBoardBytes);
}

TEST_CASE("a job has as many boards as both sides of protocol 3 say") {
  CHECK(kProtocolMax == 3);
  CHECK(kBoards == 17);
  CHECK(kBoardBytes == 634880);
}
