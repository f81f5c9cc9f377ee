// SPDX-License-Identifier: Apache-2.0
#include "daemon/flow/request.h"

namespace rueda::flow {

std::string shapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace rueda::flow
