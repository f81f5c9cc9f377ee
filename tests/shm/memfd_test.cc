// SPDX-License-Identifier: Apache-2.0
#include "shm/memfd.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>

#include "shm/mapping.h"
#include "tests/kit/temp_dir.h"

namespace {

using rueda::shm::Code;
using rueda::shm::createSealedMemfd;
using rueda::shm::Fd;
using rueda::shm::Mapping;
using rueda::shm::verifySealedMemfd;

constexpr uint64_t kBytes = 8192;

}  // namespace

TEST_CASE("a sealed segment has its size, zeros, and passes its own check") {
  const auto fd = createSealedMemfd("rueda-test", kBytes);
  REQUIRE(fd.isOk());
  CHECK(verifySealedMemfd(fd.value().get(), kBytes).isOk());
  const auto mapping = Mapping::map(fd.value().get(), kBytes);
  REQUIRE(mapping.isOk());
  for (uint64_t i = 0; i < kBytes; ++i) REQUIRE(mapping.value().data()[i] == 0);
  CHECK((::fcntl(fd.value().get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("nobody can shrink, grow or unseal it") {
  const auto fd = createSealedMemfd("rueda-test", kBytes);
  REQUIRE(fd.isOk());
  CHECK(::ftruncate(fd.value().get(), 0) != 0);
  CHECK(errno == EPERM);
  CHECK(::ftruncate(fd.value().get(), kBytes - 1) != 0);
  CHECK(::ftruncate(fd.value().get(), kBytes + 1) != 0);
  CHECK(::lseek(fd.value().get(), kBytes, SEEK_SET) == kBytes);
  CHECK(::write(fd.value().get(), "x", 1) != 1);
  CHECK(::fcntl(fd.value().get(), F_ADD_SEALS, F_SEAL_WRITE) != 0);
  CHECK(verifySealedMemfd(fd.value().get(), kBytes).isOk());
}

TEST_CASE("a size that the kernel cannot give is an error, not an exception") {
  const auto fd = createSealedMemfd("rueda-test", uint64_t{1} << 63);
  CHECK(fd.status().code() == Code::kResourceExhausted);
}

TEST_CASE("descriptors that are no sealed segment of that size are refused by name") {
  const rueda::kit::TempDir dir;
  SECTION("a file") {
    const Fd file(::open(dir.file("f").c_str(), O_CREAT | O_RDWR, 0600));
    REQUIRE(::ftruncate(file.get(), kBytes) == 0);
    CHECK_FALSE(verifySealedMemfd(file.get(), kBytes).isOk());
  }
  SECTION("a pipe") {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const Fd in(ends[0]);
    const Fd out(ends[1]);
    CHECK(verifySealedMemfd(in.get(), 0).message() == "descriptor is not a memfd");
  }
  SECTION("no descriptor") { CHECK_FALSE(verifySealedMemfd(-1, kBytes).isOk()); }
  SECTION("without seals") {
    const Fd plain(::memfd_create("plain", MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(plain.get(), kBytes) == 0);
    CHECK_THAT(verifySealedMemfd(plain.get(), kBytes).message(),
               Catch::Contains("segment lacks seals"));
  }
  SECTION("sealed in part: it can still shrink under a mapping") {
    const Fd part(::memfd_create("part", MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(part.get(), kBytes) == 0);
    REQUIRE(::fcntl(part.get(), F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL) == 0);
    CHECK_FALSE(verifySealedMemfd(part.get(), kBytes).isOk());
  }
  SECTION("of another size") {
    const auto fd = createSealedMemfd("rueda-test", kBytes);
    REQUIRE(fd.isOk());
    const auto status = verifySealedMemfd(fd.value().get(), kBytes + 1);
    CHECK(status.code() == Code::kProtocolError);
    CHECK(status.message() == "segment has 8192 bytes, announced were 8193");
  }
}
