// SPDX-License-Identifier: Apache-2.0
#pragma once

// A shared memory segment mapped into this process. The .cc is the only file that includes
// Boost.Interprocess, and uses its mapped_region alone: managed segments and interprocess mutexes
// keep state where a dying or hostile peer can break it.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shm/status.h"

namespace rueda::shm {

// Writes to every page of a range without changing a byte, so that no later access faults. First
// touch otherwise costs more than the collective (about 0.3-1 us a page). Safe while peers write.
void touchPages(void* begin, uint64_t bytes);

class Mapping {
 public:
  // Maps `bytes` of `fd` (a memfd) readable and writable. The descriptor may be closed afterwards.
  static Result<Mapping> map(int fd, uint64_t bytes);

  Mapping();
  Mapping(Mapping&&) noexcept;
  Mapping& operator=(Mapping&&) noexcept;
  ~Mapping();

  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

  // As touchPages.
  void touch() const { touch(bytes_); }
  void touch(uint64_t firstBytes) const { touchPages(data_, firstBytes); }

  // For a forked child: puts a private copy (made as it is written) in the same place. `fd` is the
  // memfd. Async-signal-safe. False where the system refuses, and then the place is unusable.
  bool becomePrivate(int fd) const;

  // Lets go of the pages, in steps of some milliseconds: unmapping gigabytes at once would hold up
  // threads that map something meanwhile. Before the destructor of a large mapping.
  void dropPages() const;

 private:
  struct Region;
  std::unique_ptr<Region> region_;
  char* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace rueda::shm
