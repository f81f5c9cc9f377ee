// SPDX-License-Identifier: Apache-2.0
#include "shm/mapping.h"

#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "shm/memfd.h"

namespace {

using rueda::shm::Code;
using rueda::shm::createSealedMemfd;
using rueda::shm::Fd;
using rueda::shm::Mapping;

constexpr uint64_t kBytes = 64 << 10;

Fd segment() { return std::move(createSealedMemfd("rueda-test", kBytes)).value(); }

}  // namespace

TEST_CASE("two mappings of one segment are the same memory") {
  const Fd fd = segment();
  const auto one = Mapping::map(fd.get(), kBytes);
  const auto two = Mapping::map(fd.get(), kBytes);
  REQUIRE(one.isOk());
  REQUIRE(two.isOk());
  CHECK(one.value().data() != two.value().data());
  CHECK(one.value().bytes() == kBytes);
  one.value().data()[kBytes - 1] = 'x';
  CHECK(two.value().data()[kBytes - 1] == 'x');
}

TEST_CASE("a mapping outlives its descriptor and moves with its owner") {
  Fd fd = segment();
  auto mapped = Mapping::map(fd.get(), kBytes);
  REQUIRE(mapped.isOk());
  fd.reset();
  Mapping moved = std::move(mapped).value();
  moved.data()[0] = 'a';
  Mapping assigned;
  assigned = std::move(moved);
  CHECK(assigned.data()[0] == 'a');
  CHECK(assigned.bytes() == kBytes);
}

TEST_CASE("an empty mapping has nothing and can be touched") {
  const Mapping none;
  CHECK(none.data() == nullptr);
  CHECK(none.bytes() == 0);
  none.touch();
}

TEST_CASE("what cannot be mapped is an error that names the size") {
  CHECK(Mapping::map(-1, kBytes).status().code() == Code::kResourceExhausted);
  const Fd fd = segment();
  const auto huge = Mapping::map(fd.get(), uint64_t{1} << 62);
  CHECK(huge.status().code() == Code::kResourceExhausted);
  CHECK_THAT(huge.status().message(), Catch::Contains("mapping 4611686018427387904 bytes"));
}

TEST_CASE("touching brings every page in and changes no byte") {
  const Fd fd = segment();
  const auto mapping = Mapping::map(fd.get(), kBytes);
  REQUIRE(mapping.isOk());
  std::memset(mapping.value().data(), 7, kBytes / 2);
  mapping.value().touch();
  std::vector<unsigned char> resident(kBytes / 4096);
  REQUIRE(::mincore(mapping.value().data(), kBytes, resident.data()) == 0);
  for (const unsigned char page : resident) CHECK((page & 1) == 1);
  for (uint64_t i = 0; i < kBytes; ++i)
    REQUIRE(mapping.value().data()[i] == (i < kBytes / 2 ? 7 : 0));
}

TEST_CASE("touching loses nothing that a peer writes meanwhile") {
  const Fd fd = segment();
  const auto mapping = Mapping::map(fd.get(), kBytes);
  REQUIRE(mapping.isOk());
  char* const first = mapping.value().data();
  std::thread peer([first] {
    for (int i = 1; i <= 100; ++i)
      for (uint64_t at = 0; at < kBytes; at += 4096)
        __atomic_store_n(first + at, static_cast<char>(i), __ATOMIC_RELAXED);
  });
  for (int i = 0; i < 100; ++i) mapping.value().touch();
  peer.join();
  for (uint64_t at = 0; at < kBytes; at += 4096) CHECK(first[at] == 100);
}
