// SPDX-License-Identifier: Apache-2.0
#include "shm/fd.h"

#include <unistd.h>

namespace rueda::shm {

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace rueda::shm
