// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/segments.h"

#include <catch2/catch.hpp>
#include <thread>

#include "shm/memfd.h"

namespace {

using rueda::client::Place;
using rueda::client::Segments;
using rueda::shm::kMaxSegments;
using rueda::shm::Mapping;

constexpr uint64_t kBytes = 4096;

Mapping map() {
  const auto memfd = rueda::shm::createSealedMemfd("rueda-test", kBytes);
  return std::move(Mapping::map(memfd.value().get(), kBytes)).value();
}

void addOwn(Segments* segments, uint32_t id) {
  auto memfd = rueda::shm::createSealedMemfd("rueda-test", kBytes);
  auto mapping = std::move(Mapping::map(memfd.value().get(), kBytes)).value();
  segments->addOwn(id, std::move(mapping), std::move(memfd).value());
}

}  // namespace

TEST_CASE("what was never added is nowhere") {
  const Segments segments;
  CHECK(segments.region(0).base == nullptr);
  CHECK(segments.region(kMaxSegments + 1).base == nullptr);
  CHECK(segments.region(0xffffffff).base == nullptr);
  int local = 0;
  CHECK_FALSE(segments.locate(&local, sizeof local).has_value());
  CHECK_FALSE(segments.locate(nullptr, 0).has_value());
}

TEST_CASE("own memory is located to the last byte, and not beyond") {
  Segments segments;
  addOwn(&segments, 1);
  addOwn(&segments, 2);
  const char* const base = segments.region(2).base;
  REQUIRE(base != nullptr);
  const auto place = segments.locate(base + 100, kBytes - 100);
  REQUIRE(place.has_value());
  CHECK(place->segment == 2);
  CHECK(place->offset == 100);
  CHECK_FALSE(segments.locate(base + 100, kBytes - 99).has_value());
  CHECK_FALSE(segments.locate(base + 1, ~uint64_t{0}).has_value());
  CHECK_FALSE(segments.locate(base - 1, 1).has_value());
}

TEST_CASE("a peer's memory has a region, but is not taken for own") {
  Segments segments;
  segments.addPeers(3, map());
  const auto region = segments.region(3);
  REQUIRE(region.base != nullptr);
  CHECK(region.bytes == kBytes);
  CHECK_FALSE(segments.locate(region.base, 1).has_value());
}

TEST_CASE("an id is taken once, and none beyond the limit") {
  Segments segments;
  addOwn(&segments, 1);
  const char* const first = segments.region(1).base;
  addOwn(&segments, 1);
  CHECK(segments.region(1).base == first);
  addOwn(&segments, kMaxSegments + 1);
  CHECK(segments.region(kMaxSegments + 1).base == nullptr);
  addOwn(&segments, kMaxSegments);
  CHECK(segments.region(kMaxSegments).base != nullptr);
}

TEST_CASE("readers find an entry whole or not at all while another thread adds") {
  Segments segments;
  constexpr uint32_t kCount = 64;
  std::thread writer([&] {
    for (uint32_t id = 1; id <= kCount; ++id)
      id % 2 == 0 ? addOwn(&segments, id) : segments.addPeers(id, map());
  });
  int wrong = 0;
  while (segments.region(kCount).base == nullptr)
    for (uint32_t id = 1; id <= kCount; ++id) {
      const auto region = segments.region(id);
      if (region.base != nullptr && region.bytes != kBytes) ++wrong;
      if (region.base != nullptr) (void)segments.locate(region.base, 1);
    }
  writer.join();
  CHECK(wrong == 0);
  CHECK(segments.locate(segments.region(kCount).base, kBytes).has_value());
}
