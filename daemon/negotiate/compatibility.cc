// SPDX-License-Identifier: Apache-2.0
#include "daemon/negotiate/compatibility.h"

#include <functional>
#include <sstream>

#include "daemon/base/log.h"

namespace rueda::negotiate {
namespace {

using flow::Request;
using shm::Code;
using shm::OpKind;
using shm::Status;

std::string text(double value) {
  std::ostringstream out;
  out.precision(17);
  out << value;
  return out.str();
}

std::string upperKind(const Request& request) {
  std::string name = shm::opKindName(request.spec.kind);
  for (char& c : name) c = static_cast<char>(std::toupper(c));
  return name;
}

// Everything that must be equal, as text: "" when the field does not matter for the operation.
std::string shapeFor(const Request& request) {
  const auto& spec = request.spec;
  if (spec.kind != OpKind::kAllgather) return flow::shapeText(spec.shape);
  std::string rest = flow::shapeText({spec.shape.begin() + 1, spec.shape.end()});
  return "[*" + std::string(spec.shape.size() > 1 ? ", " : "") + rest.substr(1);
}

std::string scalesFor(const Request& request) {
  return "prescale " + text(request.spec.prescale) + " and postscale " +
         text(request.spec.postscale);
}

std::string reductionFor(const Request& request) {
  return request.spec.kind == OpKind::kAllreduce ? shm::reduceOpName(request.spec.op) : "";
}

std::string rootFor(const Request& request) {
  return request.spec.kind == OpKind::kBroadcast ? "root " + std::to_string(request.spec.root) : "";
}

// Compares one property of all ranks with rank 0's; names the first that differs.
Status compare(const std::vector<Request>& requests, const std::string& what,
               const std::function<std::string(const Request&)>& property) {
  const std::string first = property(requests.front());
  for (const Request& request : requests) {
    const std::string other = property(request);
    if (other == first) continue;
    return {Code::kMismatch, "Mismatched " + what + " for '" + base::printable(request.name) +
                                 "': rank " + std::to_string(requests.front().rank) + " has " +
                                 first + ", but rank " + std::to_string(request.rank) + " has " +
                                 other};
  }
  return Status::ok();
}

}  // namespace

Status checkCompatible(const std::vector<Request>& requests) {
  const auto kind = [](const Request& r) { return std::string(shm::opKindName(r.spec.kind)); };
  // A barrier has no data type to compare.
  for (const Request& request : requests)
    if (request.spec.kind == OpKind::kBarrier) return compare(requests, "operations", kind);
  RUEDA_RETURN_IF_ERROR(compare(requests, "data types", [](const Request& r) {
    return std::string(shm::dtypeName(r.spec.dtype));
  }));
  RUEDA_RETURN_IF_ERROR(compare(requests, "operations", kind));
  RUEDA_RETURN_IF_ERROR(
      compare(requests, upperKind(requests.front()) + " tensor shapes", shapeFor));
  RUEDA_RETURN_IF_ERROR(compare(requests, "prescale and/or postscale factors", scalesFor));
  RUEDA_RETURN_IF_ERROR(compare(requests, "reduction operation", reductionFor));
  RUEDA_RETURN_IF_ERROR(compare(requests, "BROADCAST root ranks", rootFor));
  const flow::TensorSpec& spec = requests.front().spec;
  if (spec.kind == OpKind::kBroadcast &&
      (spec.root < 0 || spec.root >= static_cast<int>(requests.size())))
    return {Code::kInvalidArgument, "broadcast '" + base::printable(requests.front().name) +
                                        "': root " + std::to_string(spec.root) +
                                        " is not one of the " + std::to_string(requests.size()) +
                                        " ranks"};
  return Status::ok();
}

}  // namespace rueda::negotiate
