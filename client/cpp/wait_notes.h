// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a thread on a board tells the daemon, which sees nothing of it otherwise. Any thread.

#include "client/cpp/operation.h"

namespace rueda::client {

// Tells the daemon that this thread sleeps in a direct operation, and that it has woken; and that
// no thread of this rank is any more on the board of a set that was removed.
class WaitNotes {
 public:
  virtual ~WaitNotes() = default;
  // The number of the note, never 0.
  virtual uint64_t sleepsInDirect(const Operation& op, uint32_t index) = 0;
  virtual void wokeFromDirect(uint64_t note) = 0;
  virtual void leavesBoard(uint32_t set) = 0;
};

// One wait in a direct operation: the daemon hears of it only if it lasts.
class NotedWait {
 public:
  // Both outlive this.
  NotedWait(WaitNotes& notes, const Operation& op, uint32_t index)
      : notes_(notes), op_(op), index_(index) {}
  ~NotedWait() {
    if (note_ != 0) notes_.wokeFromDirect(note_);
  }
  NotedWait(const NotedWait&) = delete;
  NotedWait& operator=(const NotedWait&) = delete;

  void lasts() { note_ = notes_.sleepsInDirect(op_, index_); }

 private:
  WaitNotes& notes_;
  const Operation& op_;
  const uint32_t index_;
  uint64_t note_ = 0;
};

}  // namespace rueda::client
