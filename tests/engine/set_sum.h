// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operation that tests of process sets run most. Any thread.

#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "tests/kit/operations.h"

namespace rueda::engine::test {

using Floats = std::vector<float>;

// An in-place sum in a set. Blocking.
inline shm::Status sumIn(client::Client& client, uint32_t set, Floats* values,
                         const std::string& name = "x") {
  const std::vector<int64_t> shape = {static_cast<int64_t>(values->size())};
  client::Operation op = kit::allreduce(name, shape, values->data(), values->data());
  op.processSet = set;
  return client.run(op);
}

}  // namespace rueda::engine::test
