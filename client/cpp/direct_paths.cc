// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/direct_paths.h"

#include <utility>

namespace rueda::client {

namespace {

// What the first `places` of a set use.
void touch(shm::Board* board, int places) {
  shm::touchPages(board, offsetof(shm::Board, copies));
  for (shm::CopySlot* const half : board->copies)
    shm::touchPages(half, static_cast<uint64_t>(places) * sizeof *half);
}

}  // namespace

DirectPaths::DirectPaths(Connection& connection, Memory& memory, Patience& patience,
                         WaitNotes& notes, const Seat& ofAll)
    : connection_(connection),
      memory_(memory),
      patience_(patience),
      notes_(notes),
      ofAll_(connection, memory, patience, notes, ofAll) {}

DirectPaths::~DirectPaths() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    isOver_ = true;
  }
  paths_.fill(nullptr);
}

DirectPath* DirectPaths::findSmaller(uint32_t set, std::shared_ptr<DirectPath>* held) {
  if (set >= shm::kBoards) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  *held = paths_[set];
  return held->get();
}

void DirectPaths::add(uint32_t set, const SetPlace& at) {
  if (set >= shm::kBoards) return;
  touch(connection_.board(set), at.size);
  const std::lock_guard<std::mutex> lock(mutex_);
  paths_[set] = std::shared_ptr<DirectPath>(new DirectPath(connection_, memory_, patience_, notes_,
                                                           {set, at.place, at.size, staging_[set]}),
                                            [this, set](DirectPath* ended) { end(set, ended); });
}

void DirectPaths::remove(uint32_t set) {
  if (set >= shm::kBoards) return;
  std::shared_ptr<DirectPath> path;  // Ends without the lock.
  const std::lock_guard<std::mutex> lock(mutex_);
  path = std::exchange(paths_[set], nullptr);
}

// The last thread has let go of it.
void DirectPaths::end(uint32_t set, DirectPath* path) {
  bool isRemoved = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    staging_[set] = path->staging();
    isRemoved = !isOver_;
  }
  delete path;
  const bool mayWrite = !connection_.isForked() && !connection_.hasFailed();
  if (isRemoved && mayWrite) notes_.leavesBoard(set);
}

}  // namespace rueda::client
