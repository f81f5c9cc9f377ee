// SPDX-License-Identifier: Apache-2.0
#pragma once

// Direct broadcasts of more than a copy slot: one tensor, written to all the others. The one thread
// that is in a direct operation of the set.

#include "client/cpp/tensor_places.h"

namespace rueda::client {

class DirectSpread {
 public:
  // `seat` outlives this.
  explicit DirectSpread(BoardSeat& seat) : seat_(seat) {}

  // REQUIRES: all ranks have posted it.
  End run(const Operation& op, uint32_t index, const Tensors& tensors);

 private:
  End spread(const Operation& op, uint32_t index, const Tensors& tensors);
  End spreadStaged(const Operation& op, uint32_t index, const Tensors& tensors);
  End awaitReceivers(const Operation& op, uint32_t index, uint32_t blocks);

  BoardSeat& seat_;
};

}  // namespace rueda::client
