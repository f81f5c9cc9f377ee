// SPDX-License-Identifier: Apache-2.0
// Where the tensors of a direct operation lie: told to the others, and turned into addresses here.
#include "client/cpp/direct.h"

namespace rueda::client {

using shm::OpKind;

namespace {

constexpr int kSegmentTimeoutMs = 10000;

}  // namespace

// Where this rank's tensors lie, for the others.
shm::DirectPayload DirectPath::payloadOf(const Operation& op) const {
  const bool receivesOnly = op.kind == OpKind::kBroadcast && op.root != rank_;
  const auto in = connection_.segments().locate(op.input, op.bytes());
  // Only an allreduce is written by others.
  const auto out =
      op.kind == OpKind::kAllreduce ? connection_.segments().locate(op.output, op.bytes()) : in;
  shm::DirectPayload payload{};
  payload.staged = !receivesOnly && (!in || !out) ? 1 : 0;
  const Place from = payload.staged != 0 ? staging_ : in.value_or(Place{});
  const Place to = payload.staged != 0 ? staging_ : out.value_or(Place{});
  payload.inSegment = from.segment;
  payload.inOffset = from.offset;
  payload.outSegment = to.segment;
  payload.outOffset = to.offset;
  return payload;
}

// Turns every rank's places into addresses of this process.
bool DirectPath::resolve(const Operation& op, uint32_t index, Tensors* tensors, bool* staged) {
  for (int rank = 0; rank < size_; ++rank) {
    const shm::DirectPayload payload = line(index, rank).payload;
    tensors->staged[rank] = payload.staged != 0;
    *staged = *staged || tensors->staged[rank];
    if (op.kind == OpKind::kBroadcast && rank != op.root) continue;
    const uint64_t bytes = payload.staged != 0 ? 2 * kStagingBlock : op.bytes();
    for (const uint32_t segment : {payload.inSegment, payload.outSegment})
      if (connection_.segments().region(segment).base == nullptr) {
        const shm::Status arrived = connection_.awaitSegment(segment, kSegmentTimeoutMs);
        if (!arrived.isOk()) connection_.fail(arrived);
      }
    tensors->input[rank] =
        connection_.segments().region(payload.inSegment).at(payload.inOffset, bytes);
    tensors->output[rank] =
        connection_.segments().region(payload.outSegment).at(payload.outOffset, bytes);
    if (tensors->input[rank] == nullptr || tensors->output[rank] == nullptr) {
      connection_.fail({shm::Code::kInternal,
                        "rank " + std::to_string(rank) + " posted memory outside its segments"});
      return false;
    }
  }
  return true;
}

}  // namespace rueda::client
