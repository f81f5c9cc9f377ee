// SPDX-License-Identifier: Apache-2.0
#pragma once

// Direct allreduces and reducescatters that the ranks carry out where their tensors lie: each sums
// a part, for all or for itself. The one thread that is in a direct operation of the set.

#include "client/cpp/tensor_places.h"

namespace rueda::client {

class DirectSum {
 public:
  // `seat` outlives this. From `sliceFromBytes` on every rank sums a slice.
  DirectSum(BoardSeat& seat, uint64_t sliceFromBytes)
      : seat_(seat), sliceFromBytes_(sliceFromBytes) {}

  // REQUIRES: all ranks have posted it.
  End run(const Operation& op, uint32_t index, const Tensors& tensors);

 private:
  End sumSlices(const Operation& op, uint32_t index, const Tensors& tensors);
  uint32_t sumSlice(const Operation& op, uint32_t index, const Tensors& tensors, uint32_t slice);
  End scatter(const Operation& op, uint32_t index, const Tensors& tensors);
  End sumStaged(const Operation& op, uint32_t index, const Tensors& tensors);
  End scatterStaged(const Operation& op, uint32_t index, const Tensors& tensors);
  template <typename CopyIn, typename Combine, typename CopyOut>
  End forStagedBlocks(const Operation& op, uint32_t index, uint32_t blocks, const CopyIn& copyIn,
                      const Combine& combine, const CopyOut& copyOut);

  BoardSeat& seat_;
  const uint64_t sliceFromBytes_;
};

}  // namespace rueda::client
