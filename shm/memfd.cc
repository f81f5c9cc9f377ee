// SPDX-License-Identifier: Apache-2.0
#include "shm/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace rueda::shm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr unsigned kNoExecSeal = 0x0008U;  // MFD_NOEXEC_SEAL, Linux 6.3; absent in older headers.

}  // namespace

Result<Fd> createSealedMemfd(const char* label, uint64_t bytes) {
  Fd fd(::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecSeal));
  if (!fd.valid() && errno == EINVAL)
    fd = Fd(::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::fromErrno(Code::kResourceExhausted, "memfd_create", errno);
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return Status::fromErrno(Code::kResourceExhausted,
                             "sizing a segment to " + std::to_string(bytes) + " bytes", errno);
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0)
    return Status::fromErrno(Code::kInternal, "sealing a segment", errno);
  return fd;
}

Status verifySealedMemfd(int fd, uint64_t bytes) {
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (seals < 0) return {Code::kProtocolError, "descriptor is not a memfd"};
  if ((seals & kSeals) != kSeals)
    return {Code::kProtocolError, "segment lacks seals: has " + std::to_string(seals)};
  struct stat info {};
  if (::fstat(fd, &info) != 0) return Status::fromErrno(Code::kProtocolError, "fstat", errno);
  if (static_cast<uint64_t>(info.st_size) != bytes)
    return {Code::kProtocolError, "segment has " + std::to_string(info.st_size) +
                                      " bytes, announced were " + std::to_string(bytes)};
  return Status::ok();
}

}  // namespace rueda::shm
