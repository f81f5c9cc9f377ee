// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

namespace rueda::client {

using shm::Code;
using shm::Result;
using shm::Status;

namespace {

constexpr uint64_t kPageBytes = 4096;  // Of the page cache, or a part of its pages.
constexpr uint64_t kFirstRoom = 64 << 10;
constexpr uint64_t kCopyBytes = 1 << 20;  // At once, where the file is copied.

// Whether another one who writes the file holds its lock; else this one does from now on, where the
// file system has locks. It is the open file's, not the process's: two sessions of one process
// exclude each other, and who only reads the file there does not undo it.
bool isLocked(int fd) {
  struct flock all {};
  all.l_type = F_WRLCK;
  return ::fcntl(fd, F_OFD_SETLK, &all) != 0 && (errno == EAGAIN || errno == EACCES);
}

}  // namespace

Result<TraceFile> TraceFile::create(const std::string& path) {
  const auto refused = [&path](int error) {
    return Status::fromErrno(Code::kInvalidArgument, "cannot write the timeline '" + path + "'",
                             error);
  };
  const auto refusedAs = [&path](const std::string& reason) {
    return Status(Code::kInvalidArgument, "cannot write the timeline '" + path + "': " + reason);
  };
  // Without O_NONBLOCK a FIFO that nobody reads would hold the caller up.
  ParentFile fd = ParentFile::open(path.c_str(), O_RDWR | O_CREAT | O_NONBLOCK, 0666);
  if (!fd.valid()) return refused(errno);
  struct stat opened {};
  if (::fstat(fd.get(), &opened) != 0) return refused(errno);
  if (!S_ISREG(opened.st_mode)) return refusedAs("it is no regular file");
  if (isLocked(fd.get())) return refusedAs("another session writes it");
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), ::free);
  struct stat found {};
  if (real == nullptr || ::stat(real.get(), &found) != 0) return refused(errno);
  if (found.st_ino != opened.st_ino) return refusedAs("another process has just replaced it");
  if (::ftruncate(fd.get(), 0) != 0) return refused(errno);
  TraceFile file(std::move(fd), real.get());
  Status begun = file.write("[\n]", 3, 0);
  if (begun.isOk()) begun = file.grow();
  if (!begun.isOk()) return Status(Code::kInvalidArgument, begun.message());
  return file;
}

Status TraceFile::grow() {
  const uint64_t end = (end_ + std::max(kFirstRoom, end_)) / kPageBytes * kPageBytes;
  if (replace(end)) return Status::ok();
  return growInPlace(end);
}

bool TraceFile::replace(uint64_t end) {
  const std::string path = path_ + "." + std::to_string(::getpid()) + ".next";
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0) return false;
  ParentFile fd = ParentFile::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (!fd.valid()) return false;
  TraceFile copy(std::move(fd), path_);
  bool isDone =
      !isLocked(copy.file_.get()) && ::fchmod(copy.file_.get(), status.st_mode & 07777) == 0;
  std::string piece(std::min(end, kCopyBytes), ' ');
  const uint64_t kept = std::min(next_, end_ - 1);  // Without the bracket.
  for (uint64_t at = 0; at < kept && isDone;) {
    const uint64_t wanted = std::min<uint64_t>(kept - at, piece.size());
    const ssize_t got = ::pread(file_.get(), piece.data(), wanted, static_cast<off_t>(at));
    isDone = got > 0 && copy.write(piece.data(), static_cast<size_t>(got), at).isOk();
    at += static_cast<uint64_t>(std::max<ssize_t>(0, got));
  }
  piece.assign(piece.size(), ' ');
  for (uint64_t at = kept; at < end - 1 && isDone; at += piece.size())
    isDone = copy.write(piece.data(), std::min<uint64_t>(piece.size(), end - 1 - at), at).isOk();
  isDone =
      isDone && copy.write("]", 1, end - 1).isOk() && ::rename(path.c_str(), path_.c_str()) == 0;
  if (!isDone) {
    ::unlink(path.c_str());
    return false;
  }
  file_ = std::move(copy.file_);
  end_ = end;
  return true;
}

// Moves the bracket away. In between there is none, so a failure must leave the old one.
Status TraceFile::growInPlace(uint64_t end) {
  const std::string spaces(std::min(end - 1 - end_, kCopyBytes), ' ');
  for (uint64_t at = end_; at < end - 1; at += spaces.size()) {
    const Status made = write(spaces.data(), std::min<uint64_t>(spaces.size(), end - 1 - at), at);
    if (made.isOk()) continue;
    [[maybe_unused]] const int cut = ::ftruncate(file_.get(), static_cast<off_t>(end_));
    return made;
  }
  RUEDA_RETURN_IF_ERROR(write(" ", 1, end_ - 1));
  if (const Status moved = write("]", 1, end - 1); !moved.isOk()) {
    (void)write("]", 1, end_ - 1);
    return moved;
  }
  end_ = end;
  return Status::ok();
}

Status TraceFile::add(const std::vector<std::string>& elements) {
  std::string batch;  // For next_, inside one page.
  const auto flush = [&] {
    const Status written = write(batch.data(), batch.size(), next_);
    if (written.isOk()) next_ += batch.size();
    batch.clear();
    return written;
  };
  for (const std::string& element : elements) {
    if (element.size() > kMaxElementBytes) continue;
    const std::string piece = (isEmpty_ ? "" : ",\n") + element;
    const uint64_t at = next_ + batch.size();
    if (at / kPageBytes != (at + piece.size() - 1) / kPageBytes) {
      RUEDA_RETURN_IF_ERROR(flush());
      next_ = (next_ + kPageBytes - 1) / kPageBytes * kPageBytes;
    }
    if (next_ + batch.size() + piece.size() >= end_) {
      RUEDA_RETURN_IF_ERROR(flush());
      RUEDA_RETURN_IF_ERROR(grow());
    }
    batch += piece;
    isEmpty_ = false;
  }
  return flush();
}

Status TraceFile::finish() {
  RUEDA_RETURN_IF_ERROR(write("]", 1, next_));
  end_ = next_ + 1;
  if (::ftruncate(file_.get(), static_cast<off_t>(end_)) != 0)
    return Status::fromErrno(Code::kResourceExhausted, "the timeline '" + path_ + "'", errno);
  return Status::ok();
}

Status TraceFile::write(const char* data, size_t bytes, uint64_t at) {
  while (bytes > 0) {
    const ssize_t written = ::pwrite(file_.get(), data, bytes, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      return Status::fromErrno(Code::kResourceExhausted,
                               "cannot write the timeline '" + path_ + "'",
                               written == 0 ? ENOSPC : errno);
    data += written;
    at += static_cast<uint64_t>(written);
    bytes -= static_cast<size_t>(written);
  }
  return Status::ok();
}

}  // namespace rueda::client
