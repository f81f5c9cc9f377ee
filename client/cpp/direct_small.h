// SPDX-License-Identifier: Apache-2.0
#pragma once

// Direct barriers, sums and broadcasts that are so small that every rank puts its payload on the
// board and takes all others from there. The one thread that is in a direct operation of the set.

#include "client/cpp/board_seat.h"

namespace rueda::client {

class DirectSmall {
 public:
  // `seat` outlives this.
  explicit DirectSmall(BoardSeat& seat) : seat_(seat) {}

  static bool takes(const Operation& op) {
    return op.kind == shm::OpKind::kBarrier || op.bytes() <= shm::kCopyBytes;
  }
  // REQUIRES: takes(op), which does not gather.
  End run(const Operation& op, uint32_t index, uint32_t signature);

 private:
  End runInline(const Operation& op, uint32_t index, uint32_t signature);
  End runCopied(const Operation& op, uint32_t index, uint32_t signature);
  bool gives(const Operation& op) const;
  void finishInline(const Operation& op, uint32_t index, const shm::InlineVectors& own) const;

  BoardSeat& seat_;
};

}  // namespace rueda::client
