// SPDX-License-Identifier: Apache-2.0
#pragma once

// The tensor segments of a job as this process maps them. Lookups take no lock: an entry is written
// once and never removed while the session lives.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "shm/fd.h"
#include "shm/handshake.h"
#include "shm/mapping.h"
#include "shm/region.h"

namespace rueda::client {

// Where a tensor lies, as it is told to peers and to the daemon.
struct Place {
  uint32_t segment = 0;
  uint64_t offset = 0;
};

class Segments {
 public:
  // Takes a mapped and touched segment. Any thread.
  void addPeers(uint32_t id, shm::Mapping mapping);
  void addOwn(uint32_t id, shm::Mapping mapping, shm::Fd memfd);

  // In a forked child: what it writes to its tensors must not appear in its parent's. Takes no
  // lock.
  void becomePrivate() const;

  // The segment's memory, or an empty region for an unknown id. Any thread, no lock.
  shm::Region region(uint32_t id) const;

  // Where [pointer, pointer + bytes) lies, if inside one own segment. Any thread, no lock.
  std::optional<Place> locate(const void* pointer, uint64_t bytes) const;

 private:
  struct Entry {
    uint32_t id;
    shm::Mapping mapping;
    shm::Fd memfd;  // Of own segments.
  };
  void add(std::unique_ptr<Entry> entry);

  std::mutex mutex_;  // Of writers.
  std::vector<std::unique_ptr<Entry>> entries_;
  std::array<std::atomic<const Entry*>, shm::kMaxSegments + 1> byId_{};
  std::array<std::atomic<const Entry*>, shm::kMaxSegments> own_{};
  std::atomic<uint32_t> ownCount_{0};
};

}  // namespace rueda::client
