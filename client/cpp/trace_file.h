// SPDX-License-Identifier: Apache-2.0
#pragma once

// A JSON array in a file that grows, and is valid JSON all the while: for readers at any moment,
// and after a kill of the process. One thread.
//
// The closing bracket is written ahead, behind room of spaces. An element takes the place of
// spaces, by one write inside one page of the page cache: such a write is done whole or not at all,
// even under SIGKILL, and nobody reads both an old and a new bracket. Only where the room is used
// up or at finish() the bracket moves, by two writes (a microsecond, at every doubling of the
// size).

#include <cstdint>
#include <string>
#include <vector>

#include "shm/fd.h"
#include "shm/status.h"

namespace rueda::client {

class TraceFile {
 public:
  // Of one element.
  static constexpr size_t kMaxElementBytes = 4000;

  // Makes or empties the file: "[]", with room. kInvalidArgument names path and reason.
  static shm::Result<TraceFile> create(const std::string& path);

  // Adds JSON values of at most kMaxElementBytes each. kResourceExhausted on a failure (disk full):
  // the file is valid then, too, and holds the first ones of them.
  shm::Status add(const std::vector<std::string>& elements);
  // Drops the room that is left. A file without it is valid, only longer.
  shm::Status finish();

 private:
  TraceFile(shm::Fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  shm::Status grow();
  shm::Status write(const char* data, size_t bytes, uint64_t at);

  shm::Fd file_;
  std::string path_;
  uint64_t next_ = 2;  // Where the next element goes.
  uint64_t end_ = 3;   // Bytes of the file; the last one is the bracket.
  bool isEmpty_ = true;
};

}  // namespace rueda::client
