// SPDX-License-Identifier: Apache-2.0
#pragma once

// The direct paths of this rank: of all ranks, and of each smaller process set that has a board and
// this rank. Any thread.

#include <array>
#include <memory>
#include <mutex>

#include "client/cpp/direct.h"
#include "client/cpp/process_sets.h"

namespace rueda::client {

class DirectPaths {
 public:
  // All references outlive this and the paths.
  DirectPaths(Connection& connection, Memory& memory, Patience& patience, WaitNotes& notes,
              const Seat& ofAll);
  ~DirectPaths();
  DirectPaths(const DirectPaths&) = delete;
  DirectPaths& operator=(const DirectPaths&) = delete;

  // The path of `set`, or nullptr; that of a smaller set lives as long as *held, and its number is
  // not given to another set until then.
  DirectPath* find(uint32_t set, std::shared_ptr<DirectPath>* held) {
    return set == 0 ? &ofAll_ : findSmaller(set, held);
  }
  // Nothing for a set without a board. REQUIRES: a new set.
  void add(uint32_t set, const SetPlace& at);
  void remove(uint32_t set);

 private:
  DirectPath* findSmaller(uint32_t set, std::shared_ptr<DirectPath>* held);
  void end(uint32_t set, DirectPath* path);

  Connection& connection_;
  Memory& memory_;
  Patience& patience_;
  WaitNotes& notes_;
  DirectPath ofAll_;
  std::mutex mutex_;  // Guards the rest, which is by number of the set.
  // Shared: a set can be removed while a thread is in an operation of it.
  std::array<std::shared_ptr<DirectPath>, shm::kBoards> paths_;
  // Of sets that were removed, for the next of that number: peers may still read there.
  std::array<Place, shm::kBoards> staging_;
  bool isOver_ = false;
};

}  // namespace rueda::client
