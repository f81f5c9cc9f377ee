// SPDX-License-Identifier: Apache-2.0
#pragma once

// Direct allgathers and alltoalls. Every rank writes its rows to where the others want them: what
// it has is in its own cache, and is read once for all of them. Only memory of one process alone is
// filled by that process. The one thread that is in a direct operation of the set.

#include "client/cpp/row_table.h"
#include "client/cpp/tensor_places.h"

namespace rueda::client {

class DirectRows {
 public:
  // All references outlive this.
  DirectRows(Connection& connection, Memory& memory, BoardSeat& seat, TensorPlaces& places)
      : connection_(connection), memory_(memory), seat_(seat), places_(places) {}

  // *status: if kDone, whether this rank got its rows; the others have got theirs.
  End run(const Operation& op, uint32_t index, uint32_t signature, shm::Status* status);

 private:
  // What all ranks have said.
  struct RowPosts {
    shm::RowPayload of[shm::kMaxRanks];
    bool areCopied;  // All rows lie in the copy slots.
    bool areStaged;  // They go through staging blocks: some can neither be written nor be fetched.
  };

  void postRows(const Operation& op, uint32_t index);
  bool readPosts(const Operation& op, uint32_t index, RowPosts* posts);
  shm::Status placeRows(const Operation& op, char** to);
  void takeCopies(const Operation& op, uint32_t index, char* to) const;
  bool awaitOutput(const Operation& op, uint32_t index, const RowPosts& posts, int receiver,
                   char** to, End* end);
  void showPlace(uint32_t index, const char* to);
  End moveRows(const Operation& op, uint32_t index, const RowPosts& posts, char* to);
  bool fetchRows(const Operation& op, uint32_t index, const RowPosts& posts, char* to);
  const char* inputOf(const Operation& op, uint32_t index, const RowPosts& posts, int giver);
  End moveRowsStaged(const Operation& op, uint32_t index, const RowPosts& posts, char* to);

  Connection& connection_;
  Memory& memory_;
  BoardSeat& seat_;
  TensorPlaces& places_;
  RowTable rows_;  // Of the operation that runs.
};

}  // namespace rueda::client
