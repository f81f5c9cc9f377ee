// SPDX-License-Identifier: Apache-2.0
#pragma once

// An abstract socket's address that no other test has. Process ids do not tell tests apart: those
// that run at once in sandboxes share a network, not a numbering of processes.

#include <random>
#include <string>

namespace rueda::kit {

inline std::string abstractAddress() {
  std::random_device random;
  return "@rueda-test-" + std::to_string(random()) + "-" + std::to_string(random());
}

}  // namespace rueda::kit
