// SPDX-License-Identifier: Apache-2.0
#include "daemon/negotiate/compatibility.h"

#include <catch2/catch.hpp>
#include <functional>
#include <limits>

#include "tests/kit/flow_maker.h"

namespace {

using rueda::flow::Request;
using rueda::negotiate::checkCompatible;
using rueda::shm::Code;
using rueda::shm::DType;
using rueda::shm::OpKind;
using rueda::shm::ReduceOp;
using rueda::shm::Status;

// Three ranks that agree but for what `spoil` does to rank 2.
Status check(OpKind kind, const std::function<void(Request*)>& spoil) {
  auto requests = rueda::kit::makeRequests(3, "x", 4);
  for (Request& request : requests) request.spec.kind = kind;
  spoil(&requests[2]);
  return checkCompatible(rueda::kit::makeDecision(std::move(requests)));
}

void setShape(Request* request, const std::vector<int64_t>& shape) {
  request->spec.shape = shape;
  request->spec.count = 1;
  for (const int64_t dim : shape) request->spec.count *= static_cast<uint64_t>(dim);
}

}  // namespace

TEST_CASE("ranks that agree are compatible, whatever the kind") {
  const OpKind kind =
      GENERATE(OpKind::kAllreduce, OpKind::kAllgather, OpKind::kBroadcast, OpKind::kBarrier);
  CHECK(check(kind, [](Request*) {}).isOk());
}

TEST_CASE("one rank agrees with itself") {
  CHECK(checkCompatible(rueda::kit::makeDecision(rueda::kit::makeRequests(1, "x"))).isOk());
}

TEST_CASE("each disagreement names the operation, both ranks and both values") {
  struct Variant {
    OpKind kind;
    std::function<void(Request*)> spoil;
    const char* text;
  };
  const std::vector<Variant> variants = {
      {OpKind::kAllreduce, [](Request* r) { r->spec.dtype = DType::kFloat64; },
       "Mismatched data types for 'x': rank 0 has float32, but rank 2 has float64"},
      {OpKind::kAllreduce, [](Request* r) { r->spec.kind = OpKind::kBroadcast; },
       "Mismatched operations for 'x': rank 0 has allreduce, but rank 2 has broadcast"},
      {OpKind::kAllreduce,
       [](Request* r) {
         setShape(r, {2, 2});
       },
       "Mismatched ALLREDUCE tensor shapes for 'x': rank 0 has [4], but rank 2 has [2, 2]"},
      {OpKind::kAllreduce, [](Request* r) { setShape(r, {}); },
       "Mismatched ALLREDUCE tensor shapes for 'x': rank 0 has [4], but rank 2 has []"},
      {OpKind::kBroadcast, [](Request* r) { setShape(r, {5}); },
       "Mismatched BROADCAST tensor shapes for 'x': rank 0 has [4], but rank 2 has [5]"},
      {OpKind::kAllgather,
       [](Request* r) {
         setShape(r, {4, 3});
       },
       "Mismatched ALLGATHER tensor shapes for 'x': rank 0 has [*], but rank 2 has [*, 3]"},
      {OpKind::kAllreduce, [](Request* r) { r->spec.prescale = 0.1; },
       "Mismatched prescale and/or postscale factors for 'x': rank 0 has prescale 1 and postscale "
       "1, but rank 2 has prescale 0.10000000000000001 and postscale 1"},
      {OpKind::kAllreduce, [](Request* r) { r->spec.postscale = 2; },
       "Mismatched prescale and/or postscale factors for 'x': rank 0 has prescale 1 and postscale "
       "1, but rank 2 has prescale 1 and postscale 2"},
      {OpKind::kAllreduce, [](Request* r) { r->spec.op = ReduceOp::kAverage; },
       "Mismatched reduction operation for 'x': rank 0 has sum, but rank 2 has average"},
      {OpKind::kBroadcast, [](Request* r) { r->spec.root = 1; },
       "Mismatched BROADCAST root ranks for 'x': rank 0 has root 0, but rank 2 has root 1"},
  };
  for (const Variant& variant : variants) {
    const Status status = check(variant.kind, variant.spoil);
    CHECK(status.code() == Code::kMismatch);
    CHECK(status.message() == variant.text);
  }
}

TEST_CASE("of several disagreements the data type is told first") {
  const Status status = check(OpKind::kAllreduce, [](Request* r) {
    r->spec.dtype = DType::kInt8;
    r->spec.op = ReduceOp::kMax;
    setShape(r, {9});
  });
  CHECK(status.message() ==
        "Mismatched data types for 'x': rank 0 has float32, but rank 2 has int8");
}

TEST_CASE("a barrier and another operation differ in the operation, in either order") {
  // Once the data type was blamed, with an empty name for the barrier's.
  const bool isFirst = GENERATE(true, false);
  const Status status = check(
      isFirst ? OpKind::kBarrier : OpKind::kAllreduce,
      [isFirst](Request* r) { r->spec.kind = isFirst ? OpKind::kAllreduce : OpKind::kBarrier; });
  CHECK(status.message() ==
        (isFirst ? "Mismatched operations for 'x': rank 0 has barrier, but rank 2 has allreduce"
                 : "Mismatched operations for 'x': rank 0 has allreduce, but rank 2 has barrier"));
}

TEST_CASE("what an operation does not use need not agree") {
  CHECK(check(OpKind::kBarrier, [](Request* r) {
          r->spec.dtype = DType::kInt8;
          r->spec.root = 2;
          setShape(r, {7});
        }).isOk());
  CHECK(check(OpKind::kBroadcast, [](Request* r) { r->spec.op = ReduceOp::kMax; }).isOk());
  CHECK(check(OpKind::kAllreduce, [](Request* r) { r->spec.root = 2; }).isOk());
  CHECK(check(OpKind::kAllgather, [](Request* r) { setShape(r, {9}); }).isOk());
}

TEST_CASE("a root that all ranks agree on must be one of them") {
  const int root = GENERATE(-1, 3, std::numeric_limits<int>::max());
  auto requests = rueda::kit::makeRequests(3, "x");
  for (Request& request : requests) {
    request.spec.kind = OpKind::kBroadcast;
    request.spec.root = root;
  }
  const Status status = checkCompatible(rueda::kit::makeDecision(requests));
  CHECK(status.code() == Code::kInvalidArgument);
  CHECK(status.message() ==
        "broadcast 'x': root " + std::to_string(root) + " is not one of the ranks [0, 1, 2]");
}

TEST_CASE("a reduction that the type does not have is refused, with type, operation and name") {
  const auto [kind, dtype, op, text] = GENERATE(table<OpKind, DType, ReduceOp, std::string>({
      {OpKind::kAllreduce, DType::kComplex64, ReduceOp::kMin,
       "allreduce 'x': complex64 has no min"},
      {OpKind::kReducescatter, DType::kComplex128, ReduceOp::kMax,
       "reducescatter 'x': complex128 has no max"},
  }));
  auto requests = rueda::kit::makeRequests(3, "x");
  for (Request& request : requests) {
    request.spec.kind = kind;
    request.spec.dtype = dtype;
    request.spec.op = op;
  }
  CHECK(checkCompatible(rueda::kit::makeDecision(requests)).code() == Code::kInvalidArgument);
  CHECK(checkCompatible(rueda::kit::makeDecision(requests)).message() == text);
  // Nothing else looks at the reduce operation.
  for (Request& request : requests) request.spec.kind = OpKind::kBroadcast;
  CHECK(checkCompatible(rueda::kit::makeDecision(requests)).isOk());
}

TEST_CASE("a name of control characters is made printable in the text") {
  auto requests = rueda::kit::makeRequests(2, "a\nb");
  requests[1].spec.dtype = DType::kInt8;
  CHECK(checkCompatible(rueda::kit::makeDecision(requests)).message() ==
        "Mismatched data types for 'a\\x0ab': rank 0 has float32, but rank 1 has int8");
}

TEST_CASE("scales that are no numbers agree when they are written alike") {
  const double odd =
      GENERATE(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN());
  auto requests = rueda::kit::makeRequests(2, "x");
  for (Request& request : requests) request.spec.prescale = odd;
  CHECK(checkCompatible(rueda::kit::makeDecision(requests)).isOk());
  requests[1].spec.prescale = 1;
  CHECK(checkCompatible(rueda::kit::makeDecision(requests)).code() == Code::kMismatch);
}

TEST_CASE("a rank that cannot take part is named with its reason, unless its tensor differs") {
  const auto refuse = [](Request* request) {
    request->refusal = {Code::kResourceExhausted, "no memory for 16 bytes"};
  };
  const Status refused = check(OpKind::kAllreduce, refuse);
  CHECK(refused.code() == Code::kResourceExhausted);
  CHECK(refused.message() == "allreduce 'x': rank 2 cannot take part: no memory for 16 bytes");
  const Status differs = check(OpKind::kAllreduce, [&refuse](Request* request) {
    refuse(request);
    setShape(request, {5});
  });
  CHECK(differs.code() == Code::kMismatch);
}
