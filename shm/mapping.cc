// SPDX-License-Identifier: Apache-2.0
#include "shm/mapping.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
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

bool Mapping::becomePrivate(int fd) const {
  return ::mmap(data_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0) !=
         MAP_FAILED;
}

void Mapping::dropPages() const {
  constexpr uint64_t kStep = 64 << 20;
  for (uint64_t at = 0; at < bytes_; at += kStep)
    (void)::madvise(data_ + at, std::min(kStep, bytes_ - at), MADV_DONTNEED);
}

void touchPages(void* begin, uint64_t bytes) {
  static const uint64_t pageBytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  char* const data = static_cast<char*>(begin);
  // Adds nothing, but atomically: peers may write.
  for (uint64_t at = 0; at < bytes; at += pageBytes)
    __atomic_fetch_or(data + at, 0, __ATOMIC_RELAXED);
  if (bytes > 0) __atomic_fetch_or(data + bytes - 1, 0, __ATOMIC_RELAXED);
}

}  // namespace rueda::shm
