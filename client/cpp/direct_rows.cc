// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/direct_rows.h"

#include <algorithm>
#include <cstring>

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

End DirectRows::run(const Operation& op, uint32_t index, uint32_t signature, shm::Status* status) {
  postRows(op, index);
  if (const End posted = seat_.meet(op, index, signature); posted != End::kDone) return posted;
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
void DirectRows::postRows(const Operation& op, uint32_t index) {
  const auto in = connection_.segments().locate(op.input, op.bytes());
  const auto out =
      op.output == nullptr ? std::nullopt : connection_.segments().locate(op.output, op.outputRoom);
  shm::CopySlot& slot = seat_.copies(index)[seat_.rank()];
  shm::RowPayload payload{};
  payload.rows = static_cast<uint64_t>(op.shape[0]);
  if (op.splits != nullptr) {
    payload.hasSplits = 1;
    std::copy_n(op.splits, seat_.size(), slot.splits);
  }
  // Two copies save the wait at the end, which is cheap only for ranks that run at once.
  const bool waitsCheaply = in && out && connection_.policy().spareCores != 0;
  if (op.bytes() <= (waitsCheaply ? shm::kCopyBytes : shm::kRowCopyBytes)) {
    payload.from = RowsFrom::kCopySlot;
    if (op.count > 0) std::memcpy(slot.bytes, op.input, op.bytes());
  } else {
    payload.from = in ? RowsFrom::kSegment : RowsFrom::kStaging;
    const Place from =
        in ? *in : places_.staging();  // Which another thread may set while it is not needed.
    payload.inSegment = from.segment;
    payload.inOffset = from.offset;
  }
  payload.to = op.output == nullptr ? RowsTo::kLater : out ? RowsTo::kSegment : RowsTo::kForeign;
  payload.outSegment = out.value_or(Place{}).segment;
  payload.outOffset = out.value_or(Place{}).offset;
  payload.outRoom = op.outputRoom;
  seat_.line(index, seat_.rank()).rows = payload;
}

// Copies what all have said, once, and checks it. All ranks come to the same conclusions.
bool DirectRows::readPosts(const Operation& op, uint32_t index, RowPosts* posts) {
  const shm::CopySlot* const slots = seat_.copies(index);
  rows_.reset(seat_.size(), op.rowBytes(), op.kind == OpKind::kAllgather);
  bool isSane = true;
  bool hasStaged = false;
  bool hasForeign = false;
  posts->areCopied = true;
  for (int rank = 0; rank < seat_.size(); ++rank) {
    const shm::RowPayload said = posts->of[rank] = seat_.line(index, rank).rows;
    int64_t splits[shm::kMaxRanks];
    if (said.hasSplits != 0) std::copy_n(slots[rank].splits, seat_.size(), splits);
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
shm::Status DirectRows::placeRows(const Operation& op, char** to) {
  const uint64_t bytes = rows_.total(seat_.rank());
  for (int giver = 0; op.received != nullptr && giver < seat_.size(); ++giver)
    op.received[giver] = static_cast<int64_t>(rows_.rows(giver, seat_.rank()));
  if (bytes == 0) return shm::Status::ok();
  if (op.output == nullptr) {
    RUEDA_ASSIGN_OR_RETURN(*to, memory_.allocate(bytes));
    return shm::Status::ok();
  }
  if (bytes > op.outputRoom) return noRoom(op.kind, op.name, bytes, op.outputRoom);
  *to = static_cast<char*>(op.output);
  return shm::Status::ok();
}

void DirectRows::takeCopies(const Operation& op, uint32_t index, char* to) const {
  for (int giver = 0; to != nullptr && giver < seat_.size(); ++giver) {
    const uint64_t bytes = rows_.bytes(giver, seat_.rank());
    // Its own are nearer than the copy, which the others are reading.
    const char* const from = giver == seat_.rank() ? static_cast<const char*>(op.input)
                                                   : seat_.copies(index)[giver].bytes;
    if (bytes > 0)
      std::memcpy(to + rows_.place(giver, seat_.rank()), from + rows_.begin(giver, seat_.rank()),
                  bytes);
  }
}

// Where `receiver` wants its rows, as this process sees it; nullptr in *to if nobody else may write
// them. Waits for a place that is not known yet. False: *end says why not.
bool DirectRows::awaitOutput(const Operation& op, uint32_t index, const RowPosts& posts,
                             int receiver, char** to, End* end) {
  const shm::RowPayload& said = posts.of[receiver];
  const uint64_t bytes = rows_.total(receiver);
  *to = nullptr;
  *end = End::kDone;
  if (bytes == 0 || said.to == RowsTo::kForeign) return true;
  Place place{said.outSegment, said.outOffset};
  if (said.to == RowsTo::kLater) {
    const shm::PhaseLine& phase = seat_.phase(receiver);
    *end = seat_.awaitPhases(op, index, false, 1, receiver, receiver + 1);
    if (*end != End::kDone) return false;
    place = {phase.outSegment, phase.outOffset};
    if (place.segment == 0) return true;
  } else if (bytes > said.outRoom) {
    return true;
  }
  *to = places_.placeOf(receiver, place, bytes);
  if (*to == nullptr) *end = End::kFailed;
  return *to != nullptr;
}

// Tells the others where this rank wants its rows, now that it knows how many come.
void DirectRows::showPlace(uint32_t index, const char* to) {
  shm::PhaseLine& mine = seat_.phase(seat_.rank());
  const Place place = to == nullptr ? Place{} : connection_.segments().locate(to, 1).value();
  mine.outSegment = place.segment;
  mine.outOffset = place.offset;
  seat_.publishPhase(index, false, 1);
}

End DirectRows::moveRows(const Operation& op, uint32_t index, const RowPosts& posts, char* to) {
  if (posts.of[seat_.rank()].to == RowsTo::kLater) showPlace(index, to);
  struct Way {
    char* to;
    const char* from;
    uint64_t bytes;
  };
  Way ways[shm::kMaxRanks];
  int count = 0;
  uint64_t longest = 0;
  for (int i = 0; i < seat_.size(); ++i) {  // Begins with itself, so that not all write to one.
    const int receiver = (seat_.rank() + i) % seat_.size();
    End end = End::kDone;
    char* output = nullptr;
    if (!awaitOutput(op, index, posts, receiver, &output, &end)) return end;
    const uint64_t bytes = rows_.bytes(seat_.rank(), receiver);
    if (output == nullptr || bytes == 0) continue;
    ways[count++] = {output + rows_.place(seat_.rank(), receiver),
                     static_cast<const char*>(op.input) + rows_.begin(seat_.rank(), receiver),
                     bytes};
    longest = std::max(longest, bytes);
  }
  // What only one gets is moved as a whole.
  const uint64_t step = op.kind == OpKind::kAllgather ? kMoveBytes : longest;
  for (uint64_t at = 0; at < longest; at += step)
    for (const Way* way = ways; way < ways + count; ++way)
      if (at < way->bytes)
        shm::copyLarge(way->to + at, way->from + at, std::min(step, way->bytes - at));
  if (posts.of[seat_.rank()].to == RowsTo::kForeign && to != nullptr &&
      !fetchRows(op, index, posts, to))
    return End::kFailed;
  seat_.addFinished(index, 1, static_cast<uint32_t>(seat_.size()));
  return seat_.awaitFinished(op, index, static_cast<uint32_t>(seat_.size()));
}

// Fills memory of this process alone. REQUIRES: no rank's rows are staged.
bool DirectRows::fetchRows(const Operation& op, uint32_t index, const RowPosts& posts, char* to) {
  for (int i = 0; i < seat_.size(); ++i) {
    const int giver = (seat_.rank() + i) % seat_.size();
    const uint64_t bytes = rows_.bytes(giver, seat_.rank());
    if (bytes == 0) continue;
    const char* from = inputOf(op, index, posts, giver);
    if (from == nullptr) return false;
    shm::copyLarge(to + rows_.place(giver, seat_.rank()), from + rows_.begin(giver, seat_.rank()),
                   bytes);
  }
  return true;
}

// Where the rows of `giver` lie, as this process sees them: its staging blocks if it has staged
// them. nullptr: the session has failed.
const char* DirectRows::inputOf(const Operation& op, uint32_t index, const RowPosts& posts,
                                int giver) {
  const shm::RowPayload& said = posts.of[giver];
  const Place place{said.inSegment, said.inOffset};
  switch (said.from) {
    case RowsFrom::kCopySlot:
      return seat_.copies(index)[giver].bytes;
    case RowsFrom::kSegment:
      return giver == seat_.rank() ? static_cast<const char*>(op.input)
                                   : places_.placeOf(giver, place, rows_.inputBytes(giver));
    case RowsFrom::kStaging:
      return places_.placeOf(giver, place, 2 * kStagingBlock);
  }
  return nullptr;  // readPosts() lets no other pass.
}

}  // namespace rueda::client
