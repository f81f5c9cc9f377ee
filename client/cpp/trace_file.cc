// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/trace_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace rueda::client {

using shm::Code;
using shm::Result;
using shm::Status;

namespace {

constexpr uint64_t kPageBytes = 4096;  // Of the page cache, or a part of its pages.
constexpr uint64_t kFirstRoom = 64 << 10;
constexpr uint64_t kMostRoom = 16 << 20;  // What a kill leaves behind as spaces, at most.

}  // namespace

Result<TraceFile> TraceFile::create(const std::string& path) {
  const auto refused = [&path](int error) {
    return Status::fromErrno(Code::kInvalidArgument, "cannot write the timeline '" + path + "'",
                             error);
  };
  // Without O_NONBLOCK a FIFO that nobody reads would hold the caller up.
  shm::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0666));
  if (!fd.valid()) return refused(errno);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return refused(errno);
  if (!S_ISREG(status.st_mode))
    return Status(Code::kInvalidArgument,
                  "cannot write the timeline '" + path + "': it is no regular file");
  TraceFile file(std::move(fd), path);
  Status begun = file.write("[\n]", 3, 0);
  if (begun.isOk()) begun = file.grow();
  if (!begun.isOk()) return Status(Code::kInvalidArgument, begun.message());
  return file;
}

// Moves the bracket away. In between there is none, so a failure must leave the old one.
Status TraceFile::grow() {
  const uint64_t room = std::clamp(end_, kFirstRoom, kMostRoom);
  const uint64_t end = (end_ + room) / kPageBytes * kPageBytes;
  const std::string spaces(end - 1 - end_, ' ');
  if (const Status made = write(spaces.data(), spaces.size(), end_); !made.isOk()) {
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
