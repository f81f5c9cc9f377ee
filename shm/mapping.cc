// SPDX-License-Identifier: Apache-2.0
#include "shm/mapping.h"

#include <unistd.h>

#include <atomic>
#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <string>

namespace rueda::shm {
namespace {

namespace bip = boost::interprocess;

// What mapped_region asks of a mappable object: a handle and a mode.
struct Mappable {
  int fd;
  // NOLINTBEGIN(readability-identifier-naming): Boost's names.
  bip::mapping_handle_t get_mapping_handle() const { return {fd, false}; }
  bip::mode_t get_mode() const { return bip::read_write; }
  // NOLINTEND(readability-identifier-naming)
};

}  // namespace

struct Mapping::Region {
  bip::mapped_region region;
};

Mapping::Mapping() = default;
Mapping::Mapping(Mapping&&) noexcept = default;
Mapping& Mapping::operator=(Mapping&&) noexcept = default;
Mapping::~Mapping() = default;

Result<Mapping> Mapping::map(int fd, uint64_t bytes) {
  Mapping mapping;
  try {
    mapping.region_ = std::make_unique<Region>(
        Region{bip::mapped_region(Mappable{fd}, bip::read_write, 0, bytes)});
  } catch (const bip::interprocess_exception& error) {
    return Status(Code::kResourceExhausted,
                  "mapping " + std::to_string(bytes) + " bytes: " + error.what());
  }
  mapping.data_ = static_cast<char*>(mapping.region_->region.get_address());
  mapping.bytes_ = bytes;
  return mapping;
}

void Mapping::touch() const {
  static const uint64_t pageBytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  for (uint64_t at = 0; at < bytes_; at += pageBytes)
    __atomic_fetch_or(data_ + at, 0,
                      __ATOMIC_RELAXED);  // An atomic add of nothing: peers may write.
}

}  // namespace rueda::shm
