// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/row_table.h"

#include "shm/layout.h"

namespace rueda::client {
namespace {

// Of one rank. 64 of them are far from 2^64.
constexpr uint64_t kMostBytes = shm::kMaxElements * 16;

}  // namespace

void RowTable::reset(int ranks, uint64_t rowBytes, bool isAllgather) {
  ranks_ = ranks;
  rowBytes_ = rowBytes;
  isAllgather_ = isAllgather;
  const auto count = static_cast<size_t>(ranks);
  rows_.assign(isAllgather ? count : count * count, 0);
  inputBytes_.assign(count, 0);
}

bool RowTable::setGiver(int giver, uint64_t rows, const int64_t* splits) {
  if (rowBytes_ > 0 && rows > kMostBytes / rowBytes_) return false;
  const auto number = static_cast<size_t>(giver);
  const auto ranks = static_cast<size_t>(ranks_);
  inputBytes_[number] = rows * rowBytes_;
  if (isAllgather_) {
    rows_[number] = rows;
    return true;
  }
  uint64_t left = rows;
  for (size_t receiver = 0; receiver < ranks; ++receiver) {
    const uint64_t part =
        splits == nullptr ? rows / ranks : static_cast<uint64_t>(splits[receiver]);
    if (part > left) return false;  // A negative one, too.
    left -= part;
    rows_[number * ranks + receiver] = part;
  }
  return true;
}

uint64_t RowTable::begin(int giver, int receiver) const {
  uint64_t bytes = 0;
  for (int before = 0; !isAllgather_ && before < receiver; ++before)
    bytes += this->bytes(giver, before);
  return bytes;
}

uint64_t RowTable::place(int giver, int receiver) const {
  uint64_t bytes = 0;
  for (int before = 0; before < giver; ++before) bytes += this->bytes(before, receiver);
  return bytes;
}

}  // namespace rueda::client
