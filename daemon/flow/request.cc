// SPDX-License-Identifier: Apache-2.0
#include "daemon/flow/request.h"

#include <numeric>

namespace rueda::flow {

uint64_t TensorSpec::rowElements() const {
  uint64_t elements = 1;
  for (size_t i = 1; i < shape.size(); ++i) elements *= static_cast<uint64_t>(shape[i]);
  return elements;
}

shm::RowRange TensorSpec::rowsFor(int receiver, int size) const {
  const auto rows = static_cast<uint64_t>(shape.front());
  if (kind == shm::OpKind::kReducescatter) return shm::scatteredRows(rows, size, receiver);
  if (kind != shm::OpKind::kAlltoall) return {0, rows};
  const auto own = splits.begin() + receiver;
  return {static_cast<uint64_t>(std::accumulate(splits.begin(), own, int64_t{0})),
          static_cast<uint64_t>(*own)};
}

std::string shapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace rueda::flow
