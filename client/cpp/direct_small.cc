// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/direct_small.h"

#include <cstring>

namespace rueda::client {

using shm::OpKind;

End DirectSmall::run(const Operation& op, uint32_t index, uint32_t signature) {
  const bool isInline = op.kind == OpKind::kBarrier || op.bytes() <= shm::kInlineBytes;
  return isInline ? runInline(op, index, signature) : runCopied(op, index, signature);
}

// The payload travels in the line of its flag, and every rank sums.
End DirectSmall::runInline(const Operation& op, uint32_t index, uint32_t signature) {
  shm::InlineVectors own = {};
  if (gives(op) && op.count > 0) {
    std::memcpy(own.bytes, op.input, op.bytes());
    std::memset(seat_.line(index, seat_.rank()).vectors.bytes, 0, shm::kInlineBytes);
    std::memcpy(seat_.line(index, seat_.rank()).vectors.bytes, op.input, op.bytes());
  }
  const End posted = seat_.meet(op, index, signature);
  if (posted == End::kDone) finishInline(op, index, own);
  return posted;
}

// The payload travels beside the line, and every rank sums.
End DirectSmall::runCopied(const Operation& op, uint32_t index, uint32_t signature) {
  shm::CopySlot* const slots = seat_.copies(index);
  if (gives(op)) std::memcpy(slots[seat_.rank()].bytes, op.input, op.bytes());
  const End posted = seat_.meet(op, index, signature);
  if (posted != End::kDone) return posted;
  if (op.kind == OpKind::kBroadcast) {
    std::memcpy(op.output, slots[op.root].bytes, op.bytes());
    return End::kDone;
  }
  const uint64_t begin = op.resultBegin(seat_.rank(), seat_.size());
  const void* inputs[shm::kMaxRanks];
  for (int rank = 0; rank < seat_.size(); ++rank) inputs[rank] = slots[rank].bytes + begin;
  // Nearer than the copy, which the others are reading.
  inputs[seat_.rank()] = static_cast<const char*>(op.input) + begin;
  void* output = op.output;
  shm::reduce(op.reduceSpec(seat_.size()), inputs, seat_.size(), &output, 1,
              op.resultBytes(seat_.rank(), seat_.size()) / shm::dtypeSize(op.dtype));
  return End::kDone;
}

// Whether this rank's input goes to the others.
bool DirectSmall::gives(const Operation& op) const {
  return shm::reduces(op.kind) || (op.kind == OpKind::kBroadcast && op.root == seat_.rank());
}

// `own` is this rank's payload: to read it from the line would wait until the line, which the peers
// are reading, has come back.
void DirectSmall::finishInline(const Operation& op, uint32_t index,
                               const shm::InlineVectors& own) const {
  if (op.count == 0 || op.kind == OpKind::kBarrier) return;
  if (op.kind == OpKind::kBroadcast) {
    std::memcpy(op.output, seat_.line(index, op.root).vectors.bytes, op.bytes());
    return;
  }
  const void* inputs[shm::kMaxRanks];
  for (int rank = 0; rank < seat_.size(); ++rank)
    inputs[rank] = seat_.line(index, rank).vectors.bytes;
  inputs[seat_.rank()] = own.bytes;
  alignas(64) shm::InlineVectors sums;
  void* output = sums.bytes;
  // The zeros behind the payload too: whole vectors take half the time of a few elements.
  shm::reduce(op.reduceSpec(seat_.size()), inputs, seat_.size(), &output, 1,
              sizeof sums.bytes / shm::dtypeSize(op.dtype));
  const uint64_t resultBytes = op.resultBytes(seat_.rank(), seat_.size());
  if (resultBytes > 0)
    std::memcpy(op.output, sums.bytes + op.resultBegin(seat_.rank(), seat_.size()), resultBytes);
}

}  // namespace rueda::client
