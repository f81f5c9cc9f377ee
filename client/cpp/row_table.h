// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who gives how many rows to whom in one allgather or alltoall, and where they lie. Private copies
// of what ranks said of themselves, checked. One thread.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rueda::client {

class RowTable {
 public:
  // Forgets everything. An allgather: whoever gives, gives all its rows to everyone.
  void reset(int ranks, uint64_t rowBytes, bool isAllgather);
  // `giver` has so many rows, of which splits[r] go to rank r, in order; nullptr: as many for each.
  // False if there cannot be so many.
  bool setGiver(int giver, uint64_t rows, const int64_t* splits);

  uint64_t rows(int giver, int receiver) const {
    const auto number = static_cast<size_t>(giver);
    return rows_[isAllgather_
                     ? number
                     : number * static_cast<size_t>(ranks_) + static_cast<size_t>(receiver)];
  }
  uint64_t bytes(int giver, int receiver) const { return rows(giver, receiver) * rowBytes_; }
  // Of what `giver` has in all.
  uint64_t inputBytes(int giver) const { return inputBytes_[static_cast<size_t>(giver)]; }
  // Where the rows begin in the tensor of their giver, and where in the receiver's result; in
  // bytes.
  uint64_t begin(int giver, int receiver) const;
  uint64_t place(int giver, int receiver) const;
  // Bytes of the receiver's result.
  uint64_t total(int receiver) const { return place(ranks_, receiver); }

 private:
  int ranks_ = 0;
  uint64_t rowBytes_ = 0;
  bool isAllgather_ = true;
  std::vector<uint64_t> rows_;  // By giver; of an alltoall by giver and receiver.
  std::vector<uint64_t> inputBytes_;
};

}  // namespace rueda::client
