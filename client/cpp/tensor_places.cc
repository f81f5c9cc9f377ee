// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/tensor_places.h"

namespace rueda::client {

using shm::OpKind;
using shm::Status;

bool TensorPlaces::needsStaging(const Operation& op) const {
  if (op.kind == OpKind::kBarrier) return false;
  if (op.bytes() <= (shm::gathers(op.kind) ? shm::kRowCopyBytes : shm::kCopyBytes)) return false;
  if (op.kind == OpKind::kBroadcast && op.root != seat_.rank()) return false;
  return !memory_.owns(op.input, op.bytes()) ||
         (op.kind == OpKind::kAllreduce && !memory_.owns(op.output, op.bytes()));
}

Status TensorPlaces::ensureStaging(const Operation& op) {
  if (!needsStaging(op)) return Status::ok();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (staging_.segment != 0) return Status::ok();
  RUEDA_ASSIGN_OR_RETURN(char* const block, memory_.allocate(2 * kStagingBlock));
  staging_ = *connection_.segments().locate(block, 2 * kStagingBlock);
  return Status::ok();
}

shm::DirectPayload TensorPlaces::payloadOf(const Operation& op) const {
  const auto& segments = connection_.segments();
  shm::DirectPayload payload{};
  if (op.kind == OpKind::kBroadcast && op.root != seat_.rank()) {
    // Handing out chunks costs more than a small copy takes.
    const bool isShared = op.bytes() >= connection_.policy().sliceFromBytes;
    const Place to = isShared ? segments.locate(op.output, op.bytes()).value_or(Place{}) : Place{};
    payload.outSegment = to.segment;
    payload.outOffset = to.offset;
    return payload;
  }
  const auto in = segments.locate(op.input, op.bytes());
  // The root of a broadcast writes its own, a reducescatter's result is its rank's alone.
  const auto out = op.kind == OpKind::kAllreduce ? segments.locate(op.output, op.bytes()) : in;
  payload.staged = !in || !out ? 1 : 0;
  const Place from = payload.staged != 0 ? staging_ : *in;
  const Place to = payload.staged != 0 ? staging_ : *out;
  payload.inSegment = from.segment;
  payload.inOffset = from.offset;
  payload.outSegment = to.segment;
  payload.outOffset = to.offset;
  return payload;
}

char* TensorPlaces::placeOf(int rank, Place place, uint64_t bytes) {
  if (connection_.segments().region(place.segment).base == nullptr) {
    const shm::Status arrived = connection_.awaitSegment(place.segment, kSegmentTimeoutMs);
    if (!arrived.isOk()) connection_.fail(arrived);
  }
  char* const address = connection_.segments().region(place.segment).at(place.offset, bytes);
  if (address == nullptr)
    connection_.fail({shm::Code::kInternal,
                      "rank " + std::to_string(rank) + " posted memory outside its segments"});
  return address;
}

bool TensorPlaces::resolve(const Operation& op, uint32_t index, Tensors* tensors) {
  for (int rank = 0; rank < seat_.size(); ++rank) {
    const shm::DirectPayload payload = seat_.line(index, rank).payload;
    const bool isReceiver = op.kind == OpKind::kBroadcast && rank != op.root;
    tensors->staged[rank] = payload.staged != 0;
    tensors->input[rank] = tensors->output[rank] = nullptr;
    tensors->hasStaged = tensors->hasStaged || tensors->staged[rank];
    const uint64_t bytes = payload.staged != 0 ? 2 * kStagingBlock : op.bytes();
    if (!isReceiver) {
      tensors->input[rank] = placeOf(rank, {payload.inSegment, payload.inOffset}, bytes);
      if (tensors->input[rank] == nullptr) return false;
    }
    // Of a broadcast: only what its rank lets others write, but for the root's staging blocks.
    const bool isWritten =
        isReceiver ? payload.outSegment != 0 : op.kind != OpKind::kBroadcast || payload.staged != 0;
    if (isWritten) {
      tensors->output[rank] = placeOf(rank, {payload.outSegment, payload.outOffset}, bytes);
      if (tensors->output[rank] == nullptr) return false;
    }
  }
  return true;
}

}  // namespace rueda::client
