// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "client/cli/types.h"
#include "shm/dtype.h"

namespace {

using rueda::shm::DType;
using rueda::shm::ReduceOp;

}  // namespace

TEST_CASE("the table has a line for each data type and says what it cannot do") {
  const std::string text = rueda::cli::renderTypes();
  CHECK_THAT(text,
             Catch::StartsWith("TYPE           BYTES  AVERAGE  SUM  ADASUM  MIN  MAX  PRODUCT\n"
                               "uint8          1      yes      yes  -       yes  yes  yes\n"));
  CHECK_THAT(text,
             Catch::Contains("\nfloat32        4      yes      yes  yes     yes  yes  yes\n"));
  CHECK_THAT(text,
             Catch::EndsWith("\ncomplex128     16     yes      yes  -       -    -    yes\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1 + rueda::shm::kDTypeCount);
}

TEST_CASE("JSON lists each data type at the place of its number in the C ABI") {
  const auto types = nlohmann::json::parse(rueda::cli::jsonTypes()).at("types");
  REQUIRE(types.size() == rueda::shm::kDTypeCount);
  for (int wire = 0; wire < rueda::shm::kDTypeCount; ++wire) {
    const auto& row = types.at(static_cast<size_t>(wire));
    const DType dtype = static_cast<DType>(wire);
    CHECK(row.at("name") == rueda::shm::dtypeName(dtype));
    CHECK(row.at("wire") == wire);
    CHECK(row.at("bytes") == rueda::shm::dtypeSize(dtype));
    const auto& ops = row.at("reduce_ops");
    for (const ReduceOp op : {ReduceOp::kAverage, ReduceOp::kSum, ReduceOp::kAdasum, ReduceOp::kMin,
                              ReduceOp::kMax, ReduceOp::kProduct}) {
      const bool isListed =
          std::find(ops.begin(), ops.end(), rueda::shm::reduceOpName(op)) != ops.end();
      CHECK(isListed == rueda::shm::canReduce(rueda::shm::OpKind::kAllreduce, dtype, op));
    }
  }
}
