// SPDX-License-Identifier: Apache-2.0
#include "shm/fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace {

using rueda::shm::Fd;

int openNull() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool isOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

}  // namespace

TEST_CASE("a descriptor is closed with its owner") {
  int raw = -1;
  {
    const Fd fd(openNull());
    raw = fd.get();
    CHECK(fd.valid());
    CHECK(isOpen(raw));
  }
  CHECK_FALSE(isOpen(raw));
  CHECK_FALSE(Fd().valid());
}

TEST_CASE("a moved descriptor has one owner, the new one") {
  Fd first(openNull());
  const int raw = first.get();
  Fd second(std::move(first));
  CHECK(second.get() == raw);
  Fd third(openNull());
  const int replaced = third.get();
  third = std::move(second);
  CHECK_FALSE(isOpen(replaced));
  CHECK(third.get() == raw);
  third = std::move(*&third);  // To itself: nothing happens.
  CHECK(isOpen(raw));
}

TEST_CASE("a released descriptor stays open, a reset one does not") {
  Fd fd(openNull());
  const int raw = fd.release();
  CHECK_FALSE(fd.valid());
  CHECK(isOpen(raw));
  fd = Fd(raw);
  fd.reset();
  fd.reset();
  CHECK_FALSE(isOpen(raw));
}
