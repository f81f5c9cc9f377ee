// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/direct_sum.h"

#include <algorithm>

namespace rueda::client {

using shm::OpKind;

namespace {

constexpr uint64_t kChunkBytes = 256 << 10;  // Of one slice; what a rank claims at a time.

// How an operation is cut: `slices` equal parts, each of chunks that are claimed one by one.
struct Cut {
  uint32_t slices = 1;
  uint64_t perSlice = 0;  // Elements; the last slice has the rest.
  uint64_t perChunk = 0;  // Elements.

  uint32_t chunksOf(uint32_t slice, uint64_t count) const {
    const uint64_t begin = std::min(count, slice * perSlice);
    const uint64_t elements = std::min(count, begin + perSlice) - begin;
    return static_cast<uint32_t>((elements + perChunk - 1) / perChunk);
  }
};

Cut cut(const Operation& op, int size, uint64_t sliceFromBytes) {
  const uint64_t elementBytes = shm::dtypeSize(op.dtype);
  const uint64_t line = 64 / elementBytes;
  Cut c;
  c.slices = op.bytes() >= sliceFromBytes ? static_cast<uint32_t>(size) : 1;
  c.perSlice = ((op.count + c.slices - 1) / c.slices + line - 1) / line * line;
  c.perChunk = kChunkBytes / elementBytes;
  return c;
}

}  // namespace

End DirectSum::run(const Operation& op, uint32_t index, const Tensors& tensors) {
  if (op.kind == OpKind::kReducescatter)
    return tensors.hasStaged ? scatterStaged(op, index, tensors) : scatter(op, index, tensors);
  return tensors.hasStaged ? sumStaged(op, index, tensors) : sumSlices(op, index, tensors);
}

// Claims and sums chunks of one slice until none is left; returns how many.
uint32_t DirectSum::sumSlice(const Operation& op, uint32_t index, const Tensors& tensors,
                             uint32_t slice) {
  const Cut c = cut(op, seat_.size(), sliceFromBytes_);
  const uint64_t elementBytes = shm::dtypeSize(op.dtype);
  const uint64_t sliceBegin = std::min(op.count, slice * c.perSlice);
  const uint64_t sliceEnd = std::min(op.count, sliceBegin + c.perSlice);
  const uint32_t chunks = c.chunksOf(slice, op.count);
  uint32_t done = 0;
  uint32_t chunk = 0;
  while (seat_.claimChunk(index, slice, chunks, &chunk)) {
    const uint64_t begin = sliceBegin + chunk * c.perChunk;
    const uint64_t end = std::min(sliceEnd, begin + c.perChunk);
    const void* inputs[shm::kMaxRanks];
    void* outputs[shm::kMaxRanks];
    for (int rank = 0; rank < seat_.size(); ++rank) {
      inputs[rank] = tensors.input[rank] + begin * elementBytes;
      outputs[rank] = tensors.output[rank] + begin * elementBytes;
    }
    shm::reduce(op.reduceSpec(seat_.size()), inputs, seat_.size(), outputs, seat_.size(),
                end - begin);
    ++done;
  }
  return done;
}

// Every rank begins with its own slice and then helps with what others have not claimed: a rank
// that is not running does not hold up the rest for more than the chunk it is in.
End DirectSum::sumSlices(const Operation& op, uint32_t index, const Tensors& tensors) {
  const Cut c = cut(op, seat_.size(), sliceFromBytes_);
  uint32_t total = 0;
  uint32_t done = 0;
  for (uint32_t s = 0; s < c.slices; ++s) total += c.chunksOf(s, op.count);
  for (uint32_t s = 0; s < c.slices; ++s)
    done += sumSlice(op, index, tensors, (static_cast<uint32_t>(seat_.rank()) + s) % c.slices);
  seat_.addFinished(index, done, total);
  return seat_.awaitFinished(op, index, total);
}

// Every rank combines the rows that are for it, straight into its own memory, and returns when
// nobody reads its input any more.
End DirectSum::scatter(const Operation& op, uint32_t index, const Tensors& tensors) {
  const void* inputs[shm::kMaxRanks];
  for (int rank = 0; rank < seat_.size(); ++rank)
    inputs[rank] = tensors.input[rank] + op.resultBegin(seat_.rank(), seat_.size());
  void* output = op.output;
  shm::reduce(op.reduceSpec(seat_.size()), inputs, seat_.size(), &output, 1,
              op.resultBytes(seat_.rank(), seat_.size()) / shm::dtypeSize(op.dtype));
  seat_.addFinished(index, 1, static_cast<uint32_t>(seat_.size()));
  return seat_.awaitFinished(op, index, static_cast<uint32_t>(seat_.size()));
}

}  // namespace rueda::client
