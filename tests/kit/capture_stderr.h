// SPDX-License-Identifier: Apache-2.0
#pragma once

// What this process writes to its standard error while this lives, log lines above all. One thread;
// no assertion of a test may fail meanwhile, since its report would be caught too.

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "shm/fd.h"

namespace rueda::kit {

class CaptureStderr {
 public:
  CaptureStderr() : file_(::memfd_create("stderr", MFD_CLOEXEC)), saved_(::dup(STDERR_FILENO)) {
    ::dup2(file_.get(), STDERR_FILENO);
  }
  ~CaptureStderr() { restore(); }
  CaptureStderr(const CaptureStderr&) = delete;
  CaptureStderr& operator=(const CaptureStderr&) = delete;

  // Ends the capture.
  std::string text() {
    restore();
    std::string all(static_cast<size_t>(::lseek(file_.get(), 0, SEEK_END)), '\0');
    all.resize(static_cast<size_t>(::pread(file_.get(), all.data(), all.size(), 0)));
    return all;
  }

 private:
  void restore() {
    if (!saved_.valid()) return;
    ::fflush(stderr);
    ::dup2(saved_.get(), STDERR_FILENO);
    saved_.reset();
  }

  shm::Fd file_;
  shm::Fd saved_;
};

}  // namespace rueda::kit
