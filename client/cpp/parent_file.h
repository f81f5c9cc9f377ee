// SPDX-License-Identifier: Apache-2.0
#pragma once

// A file of this process that forked children do not have: theirs is closed at once. So what hangs
// on the open file, as a lock, ends with the process, whoever lives on.

#include <sys/types.h>

#include <utility>

namespace rueda::client {

class ParentFile {
 public:
  ParentFile() = default;
  // As open(2); not valid(), and errno, where that fails. Any thread.
  static ParentFile open(const char* path, int flags, mode_t mode);
  // In a forked child it must not be destroyed: the number may be another file's.
  ~ParentFile() { close(); }
  ParentFile(ParentFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ParentFile& operator=(ParentFile&& other) noexcept;

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  void close();

  int fd_ = -1;
};

}  // namespace rueda::client
