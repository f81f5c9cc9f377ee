// SPDX-License-Identifier: Apache-2.0
#pragma once

// A JSON array in a file that grows, and is valid JSON all the while, also after a kill of the
// process. One thread.
//
// The closing bracket is written ahead, behind room of spaces. An element takes the place of
// spaces, by one write inside one page of the page cache: such a write is done whole or not at all,
// even under SIGKILL. (A reader must copy that page in the same 100 ns to see a part of it.) Where
// the room is used up a copy with more of it replaces the file, whose size doubles each time. Only
// where the folder does not allow that, and at finish(), two writes move the bracket in place.

#include <cstdint>
#include <string>
#include <vector>

#include "client/cpp/parent_file.h"
#include "shm/status.h"

namespace rueda::client {

class TraceFile {
 public:
  // Of one element.
  static constexpr size_t kMaxElementBytes = 4000;

  // Makes or empties the file: "[]", with room. kInvalidArgument names path and reason, such as
  // another session that writes it, in this process or not.
  static shm::Result<TraceFile> create(const std::string& path);

  // Adds JSON values of at most kMaxElementBytes each. kResourceExhausted on a failure (disk full):
  // the file is valid then, too, and holds the first ones of them.
  shm::Status add(const std::vector<std::string>& elements);
  // Drops the room that is left. A file without it is valid, only longer.
  shm::Status finish();

 private:
  TraceFile(ParentFile file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}
  shm::Status grow();
  shm::Status growInPlace(uint64_t end);
  // False, without a trace of it, if that is not possible.
  bool replace(uint64_t end);
  shm::Status write(const char* data, size_t bytes, uint64_t at);

  ParentFile file_;
  std::string path_;   // Absolute, without links: the process may change its folder.
  uint64_t next_ = 2;  // Where the next element goes.
  uint64_t end_ = 3;   // Bytes of the file; the last one is the bracket.
  bool isEmpty_ = true;
};

}  // namespace rueda::client
