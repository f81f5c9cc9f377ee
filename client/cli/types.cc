// SPDX-License-Identifier: Apache-2.0
#include "client/cli/types.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <vector>

#include "client/cli/format.h"
#include "shm/dtype.h"

namespace rueda::cli {
namespace {

using shm::DType;
using shm::ReduceOp;

std::vector<DType> allTypes() {
  std::vector<DType> types;
  for (int wire = 0; wire < shm::kDTypeCount; ++wire) types.push_back(static_cast<DType>(wire));
  return types;
}

bool canReduce(DType dtype, ReduceOp op) {
  return shm::canReduce(shm::OpKind::kAllreduce, dtype, op);
}

std::vector<ReduceOp> allOps() {
  std::vector<ReduceOp> ops;
  for (int wire = 0; wire < 256; ++wire)
    if (const auto op = shm::reduceOpFromWire(static_cast<uint8_t>(wire))) ops.push_back(*op);
  return ops;
}

}  // namespace

std::string renderTypes() {
  std::vector<std::string> header = {"TYPE", "BYTES"};
  for (const ReduceOp op : allOps()) {
    std::string name = shm::reduceOpName(op);
    std::transform(name.begin(), name.end(), name.begin(), [](char c) { return std::toupper(c); });
    header.push_back(name);
  }
  Table table(header);
  for (const DType dtype : allTypes()) {
    std::vector<std::string> row = {shm::dtypeName(dtype), std::to_string(shm::dtypeSize(dtype))};
    for (const ReduceOp op : allOps()) row.push_back(canReduce(dtype, op) ? "yes" : "-");
    table.add(row);
  }
  return table.toString();
}

std::string jsonTypes() {
  using Json = nlohmann::ordered_json;  // Fields keep the order in which they are written here.
  Json types = Json::array();
  for (const DType dtype : allTypes()) {
    Json ops = Json::array();
    for (const ReduceOp op : allOps())
      if (canReduce(dtype, op)) ops.push_back(shm::reduceOpName(op));
    types.push_back({{"name", shm::dtypeName(dtype)},
                     {"wire", static_cast<int>(dtype)},
                     {"bytes", shm::dtypeSize(dtype)},
                     {"reduce_ops", ops}});
  }
  return Json({{"types", types}}).dump(2) + "\n";
}

}  // namespace rueda::cli
