// SPDX-License-Identifier: Apache-2.0
#pragma once

// A folder of one test, with a name short enough for sockets in it. Removed with all it holds.

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace rueda::kit {

class TempDir {
 public:
  TempDir() {
    char name[] = "/tmp/rueda-XXXXXX";
    if (::mkdtemp(name) != nullptr) path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace rueda::kit
