// SPDX-License-Identifier: Apache-2.0
#pragma once

// Collectives for tests, one function a kind. They borrow name, memory and shape, as Operation
// does.

#include <cstdint>
#include <string_view>
#include <vector>

#include "client/cpp/operation.h"

namespace rueda::kit {

inline client::Operation shaped(shm::OpKind kind, std::string_view name,
                                const std::vector<int64_t>& shape) {
  client::Operation op;
  op.kind = kind;
  op.name = name;
  op.shape = shape.data();
  op.ndim = static_cast<uint32_t>(shape.size());
  op.count = 1;
  for (const int64_t dim : shape) op.count *= static_cast<uint64_t>(dim);
  return op;
}

// A float32 sum from `input` to `output`.
inline client::Operation allreduce(std::string_view name, const std::vector<int64_t>& shape,
                                   const void* input, void* output) {
  client::Operation op = shaped(shm::OpKind::kAllreduce, name, shape);
  op.input = input;
  op.output = output;
  return op;
}

// In place; float32.
inline client::Operation broadcast(std::string_view name, const std::vector<int64_t>& shape,
                                   void* memory, int root) {
  client::Operation op = shaped(shm::OpKind::kBroadcast, name, shape);
  op.input = op.output = memory;
  op.root = root;
  return op;
}

inline client::Operation allgather(std::string_view name, const std::vector<int64_t>& shape,
                                   const void* rows) {
  client::Operation op = shaped(shm::OpKind::kAllgather, name, shape);
  op.input = rows;
  return op;
}

// `splits` is borrowed, too; empty: as many rows for each rank.
inline client::Operation alltoall(std::string_view name, const std::vector<int64_t>& shape,
                                  const void* rows, const std::vector<int64_t>& splits) {
  client::Operation op = shaped(shm::OpKind::kAlltoall, name, shape);
  op.input = rows;
  op.splits = splits.empty() ? nullptr : splits.data();
  op.splitCount = static_cast<uint32_t>(splits.size());
  return op;
}

inline client::Operation barrier(std::string_view name) {
  client::Operation op;
  op.kind = shm::OpKind::kBarrier;
  op.name = name;
  op.count = 0;
  return op;
}

}  // namespace rueda::kit
