// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/parent_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace rueda::client {
namespace {

std::mutex filesMutex;  // Held over a fork, so that the child finds the list whole.
std::vector<int>& files = *new std::vector<int>();  // Guarded by filesMutex; never freed.

void onForkedChild() {
  for (const int fd : files) ::close(fd);
  files.clear();
  filesMutex.unlock();
}

}  // namespace

ParentFile ParentFile::open(const char* path, int flags, mode_t mode) {
  static const int registered =
      ::pthread_atfork([] { filesMutex.lock(); }, [] { filesMutex.unlock(); }, onForkedChild);
  (void)registered;
  const std::lock_guard<std::mutex> lock(filesMutex);
  ParentFile file;
  file.fd_ = ::open(path, flags | O_CLOEXEC, mode);
  if (file.valid()) files.push_back(file.fd_);
  return file;
}

ParentFile& ParentFile::operator=(ParentFile&& other) noexcept {
  close();
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

void ParentFile::close() {
  if (!valid()) return;
  const std::lock_guard<std::mutex> lock(filesMutex);
  files.erase(std::remove(files.begin(), files.end(), fd_), files.end());
  ::close(std::exchange(fd_, -1));
}

}  // namespace rueda::client
