// SPDX-License-Identifier: Apache-2.0
// Allgather and alltoall on the board. Every rank writes its rows to where the others want them:
// what it has is in its own cache, and is read once for all of them. Only memory of one process
// alone is filled by that process.
#include <algorithm>
#include <cstring>

#include "client/cpp/direct.h"
#include "shm/copy.h"

namespace rueda::client {

using shm::OpKind;
using shm::RowsFrom;
using shm::RowsTo;

namespace {

// Read once and written to every receiver: the second one finds it in the first-level cache or the
// second.
constexpr uint64_t kMoveBytes = 64 << 10;

}  // namespace

DirectPath::End DirectPath::runGather(const Operation& op, uint32_t index, uint32_t signature,
                                      shm::Status* status) {
  postRows(op, index);
  post(index, signature);
  if (const End posted = awaitPosts(op, index, signature); posted != End::kDone) return posted;
  RowPosts posts;
  if (!readPosts(op, index, &posts)) return End::kFailed;
  char* to = nullptr;
  *status = placeRows(op, &to);
  End end = End::kDone;
  if (posts.areCopied)
    takeCopies(op, index, to);
  else if (posts.areStaged)
    end = moveRowsStaged(op, index, posts, to);
  else
    end = moveRows(op, index, posts, to);
  // Not before: after a failure a peer may still be writing there.
  if (end == End::kDone && op.output == nullptr) *op.result = to;
  return end;
}

// Writes what this rank gives, and where it wants the rows of all.
void DirectPath::postRows(const Operation& op, uint32_t index) {
  const auto in = connection_.segments().locate(op.input, op.bytes());
  const auto out =
      op.output == nullptr ? std::nullopt : connection_.segments().locate(op.output, op.outputRoom);
  shm::CopySlot& slot = board_->copies[index & 1][rank_];
  shm::RowPayload payload{};
  payload.rows = static_cast<uint64_t>(op.shape[0]);
  if (op.splits != nullptr) {
    payload.hasSplits = 1;
    std::copy_n(op.splits, size_, slot.splits);
  }
  // Two copies save the wait at the end, which is cheap only for ranks that run at once.
  const bool waitsCheaply = in && out && connection_.policy().spareCores != 0;
  if (op.bytes() <= (waitsCheaply ? shm::kCopyBytes : shm::kRowCopyBytes)) {
    payload.from = RowsFrom::kCopySlot;
    if (op.count > 0) std::memcpy(slot.bytes, op.input, op.bytes());
  } else {
    payload.from = in ? RowsFrom::kSegment : RowsFrom::kStaging;
    const Place from = in ? *in : staging_;  // Which another thread may set while it is not needed.
    payload.inSegment = from.segment;
    payload.inOffset = from.offset;
  }
  payload.to = op.output == nullptr ? RowsTo::kLater : out ? RowsTo::kSegment : RowsTo::kForeign;
  payload.outSegment = out.value_or(Place{}).segment;
  payload.outOffset = out.value_or(Place{}).offset;
  payload.outRoom = op.outputRoom;
  line(index, rank_).rows = payload;
}

// Copies what all have said, once, and checks it. All ranks come to the same conclusions.
bool DirectPath::readPosts(const Operation& op, uint32_t index, RowPosts* posts) {
  const shm::CopySlot* const slots = board_->copies[index & 1];
  rows_.reset(size_, op.rowBytes(), op.kind == OpKind::kAllgather);
  bool isSane = true;
  bool hasStaged = false;
  bool hasForeign = false;
  posts->areCopied = true;
  for (int rank = 0; rank < size_; ++rank) {
    const shm::RowPayload said = posts->of[rank] = line(index, rank).rows;
    int64_t splits[shm::kMaxRanks];
    if (said.hasSplits != 0) std::copy_n(slots[rank].splits, size_, splits);
    isSane = isSane && rows_.setGiver(rank, said.rows, said.hasSplits != 0 ? splits : nullptr);
    const bool isCopied = said.from == RowsFrom::kCopySlot;
    isSane = isSane && said.from <= RowsFrom::kStaging &&
             (!isCopied || rows_.inputBytes(rank) <= shm::kRowCopyBytes);
    posts->areCopied = posts->areCopied && isCopied;
    hasStaged = hasStaged || said.from == RowsFrom::kStaging;
    hasForeign = hasForeign || said.to == RowsTo::kForeign;
  }
  posts->areStaged = hasStaged && hasForeign;
  if (!isSane) connection_.fail({shm::Code::kInternal, "a rank posted rows that cannot be"});
  return isSane;
}

// Where this rank gets its rows, or nullptr if it does not get them.
shm::Status DirectPath::placeRows(const Operation& op, char** to) {
  const uint64_t bytes = rows_.total(rank_);
  for (int giver = 0; op.received != nullptr && giver < size_; ++giver)
    op.received[giver] = static_cast<int64_t>(rows_.rows(giver, rank_));
  if (bytes == 0) return shm::Status::ok();
  if (op.output == nullptr) {
    RUEDA_ASSIGN_OR_RETURN(*to, memory_.allocate(bytes));
    return shm::Status::ok();
  }
  if (bytes > op.outputRoom) return noRoom(op.kind, op.name, bytes, op.outputRoom);
  *to = static_cast<char*>(op.output);
  return shm::Status::ok();
}

void DirectPath::takeCopies(const Operation& op, uint32_t index, char* to) const {
  for (int giver = 0; to != nullptr && giver < size_; ++giver) {
    const uint64_t bytes = rows_.bytes(giver, rank_);
    // Its own are nearer than the copy, which the others are reading.
    const char* const from = giver == rank_ ? static_cast<const char*>(op.input)
                                            : board_->copies[index & 1][giver].bytes;
    if (bytes > 0)
      std::memcpy(to + rows_.place(giver, rank_), from + rows_.begin(giver, rank_), bytes);
  }
}

// Where `receiver` wants its rows, as this process sees it; nullptr in *to if nobody else may write
// them. Waits for a place that is not known yet. False: *end says why not.
bool DirectPath::awaitOutput(const Operation& op, uint32_t index, const RowPosts& posts,
                             int receiver, char** to, End* end) {
  const shm::RowPayload& said = posts.of[receiver];
  const uint64_t bytes = rows_.total(receiver);
  *to = nullptr;
  *end = End::kDone;
  if (bytes == 0 || said.to == RowsTo::kForeign) return true;
  Place place{said.outSegment, said.outOffset};
  if (said.to == RowsTo::kLater) {
    const shm::PhaseLine& phase = board_->phases[receiver];
    *end = awaitPhases(op, index, false, 1, receiver, receiver + 1);
    if (*end != End::kDone) return false;
    place = {phase.outSegment, phase.outOffset};
    if (place.segment == 0) return true;
  } else if (bytes > said.outRoom) {
    return true;
  }
  *to = placeOf(receiver, place, bytes);
  if (*to == nullptr) *end = End::kFailed;
  return *to != nullptr;
}

// Tells the others where this rank wants its rows, now that it knows how many come.
void DirectPath::showPlace(uint32_t index, const char* to) {
  shm::PhaseLine& mine = board_->phases[rank_];
  const Place place = to == nullptr ? Place{} : connection_.segments().locate(to, 1).value();
  mine.outSegment = place.segment;
  mine.outOffset = place.offset;
  publishPhase(index, false, 1);
}

DirectPath::End DirectPath::moveRows(const Operation& op, uint32_t index, const RowPosts& posts,
                                     char* to) {
  if (posts.of[rank_].to == RowsTo::kLater) showPlace(index, to);
  struct Way {
    char* to;
    const char* from;
    uint64_t bytes;
  };
  Way ways[shm::kMaxRanks];
  int count = 0;
  uint64_t longest = 0;
  for (int i = 0; i < size_; ++i) {  // Begins with itself, so that not all write to one.
    const int receiver = (rank_ + i) % size_;
    End end = End::kDone;
    char* output = nullptr;
    if (!awaitOutput(op, index, posts, receiver, &output, &end)) return end;
    const uint64_t bytes = rows_.bytes(rank_, receiver);
    if (output == nullptr || bytes == 0) continue;
    ways[count++] = {output + rows_.place(rank_, receiver),
                     static_cast<const char*>(op.input) + rows_.begin(rank_, receiver), bytes};
    longest = std::max(longest, bytes);
  }
  // What only one gets is moved as a whole.
  const uint64_t step = op.kind == OpKind::kAllgather ? kMoveBytes : longest;
  for (uint64_t at = 0; at < longest; at += step)
    for (const Way* way = ways; way < ways + count; ++way)
      if (at < way->bytes)
        shm::copyLarge(way->to + at, way->from + at, std::min(step, way->bytes - at));
  if (posts.of[rank_].to == RowsTo::kForeign && to != nullptr && !fetchRows(op, index, posts, to))
    return End::kFailed;
  addFinished(index, 1, static_cast<uint32_t>(size_));
  return awaitFinished(op, index, static_cast<uint32_t>(size_));
}

// Fills memory of this process alone. REQUIRES: no rank's rows are staged.
bool DirectPath::fetchRows(const Operation& op, uint32_t index, const RowPosts& posts, char* to) {
  for (int i = 0; i < size_; ++i) {
    const int giver = (rank_ + i) % size_;
    const uint64_t bytes = rows_.bytes(giver, rank_);
    if (bytes == 0) continue;
    const char* from = inputOf(op, index, posts, giver);
    if (from == nullptr) return false;
    shm::copyLarge(to + rows_.place(giver, rank_), from + rows_.begin(giver, rank_), bytes);
  }
  return true;
}

// Where the rows of `giver` lie, as this process sees them: its staging blocks if it has staged
// them. nullptr: the session has failed.
const char* DirectPath::inputOf(const Operation& op, uint32_t index, const RowPosts& posts,
                                int giver) {
  const shm::RowPayload& said = posts.of[giver];
  const Place place{said.inSegment, said.inOffset};
  switch (said.from) {
    case RowsFrom::kCopySlot:
      return board_->copies[index & 1][giver].bytes;
    case RowsFrom::kSegment:
      return giver == rank_ ? static_cast<const char*>(op.input)
                            : placeOf(giver, place, rows_.inputBytes(giver));
    case RowsFrom::kStaging:
      return placeOf(giver, place, 2 * kStagingBlock);
  }
  return nullptr;  // readPosts() lets no other pass.
}

}  // namespace rueda::client
