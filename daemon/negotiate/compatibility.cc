// SPDX-License-Identifier: Apache-2.0
#include "daemon/negotiate/compatibility.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>

#include "daemon/base/log.h"

namespace rueda::negotiate {
namespace {

using flow::Request;
using flow::TensorSpec;
using shm::Code;
using shm::OpKind;
using shm::Status;

// What must be equal on all ranks: compared as values for every operation, and put into words when
// they differ. What follows the kind in kProperties is asked of equal kinds only.
struct Property {
  const char* what;
  bool (*equal)(const TensorSpec& a, const TensorSpec& b);
  std::string (*words)(const TensorSpec& spec);
};

std::string kindWords(const TensorSpec& spec) { return shm::opKindName(spec.kind); }
bool equalKinds(const TensorSpec& a, const TensorSpec& b) { return a.kind == b.kind; }

std::string dtypeWords(const TensorSpec& spec) { return shm::dtypeName(spec.dtype); }
bool equalDtypes(const TensorSpec& a, const TensorSpec& b) { return a.dtype == b.dtype; }

// An allgather joins its tensors along the first dimension, which is free; so is an alltoall's.
size_t freeDimensions(const TensorSpec& spec) { return shm::gathers(spec.kind) ? 1 : 0; }

std::string shapeWords(const TensorSpec& spec) {
  if (freeDimensions(spec) == 0) return flow::shapeText(spec.shape);
  const std::string rest = flow::shapeText({spec.shape.begin() + 1, spec.shape.end()});
  return "[*" + std::string(spec.shape.size() > 1 ? ", " : "") + rest.substr(1);
}

bool equalShapes(const TensorSpec& a, const TensorSpec& b) {
  const auto first = static_cast<ptrdiff_t>(freeDimensions(a));
  return a.shape.size() == b.shape.size() &&
         std::equal(a.shape.begin() + first, a.shape.end(), b.shape.begin() + first);
}

std::string scaleWords(const TensorSpec& spec) {
  char text[96];
  std::snprintf(text, sizeof text, "prescale %.17g and postscale %.17g", spec.prescale,
                spec.postscale);
  return text;
}

// By bits: not a number agrees with itself.
bool equalScales(const TensorSpec& a, const TensorSpec& b) {
  return std::memcmp(&a.prescale, &b.prescale, sizeof a.prescale) == 0 &&
         std::memcmp(&a.postscale, &b.postscale, sizeof a.postscale) == 0;
}

std::string reductionWords(const TensorSpec& spec) { return shm::reduceOpName(spec.op); }
bool equalReductions(const TensorSpec& a, const TensorSpec& b) {
  return !shm::reduces(a.kind) || a.op == b.op;
}

std::string rootWords(const TensorSpec& spec) { return "root " + std::to_string(spec.root); }
bool equalRoots(const TensorSpec& a, const TensorSpec& b) {
  return a.kind != OpKind::kBroadcast || a.root == b.root;
}

constexpr Property kKind = {"operations", equalKinds, kindWords};
// In the order in which scripts are told. "%" stands for the kind in capitals.
constexpr Property kProperties[] = {
    {"data types", equalDtypes, dtypeWords},
    kKind,
    {"% tensor shapes", equalShapes, shapeWords},
    {"prescale and/or postscale factors", equalScales, scaleWords},
    {"reduction operation", equalReductions, reductionWords},
    {"% root ranks", equalRoots, rootWords},
};

std::string nameOf(const Property& property, const TensorSpec& spec) {
  std::string name = property.what;
  if (name.front() != '%') return name;
  std::string kind = kindWords(spec);
  for (char& c : kind) c = static_cast<char>(std::toupper(c));
  return kind + name.substr(1);
}

// Compares one property of all ranks with the first one's; names the first that differs.
Status compare(const std::vector<Request>& requests, const Property& property) {
  const Request& first = requests.front();
  for (const Request& request : requests) {
    if (property.equal(first.spec, request.spec)) continue;
    return {Code::kMismatch, "Mismatched " + nameOf(property, first.spec) + " for '" +
                                 base::printable(request.name) + "': rank " +
                                 std::to_string(first.rank) + " has " + property.words(first.spec) +
                                 ", but rank " + std::to_string(request.rank) + " has " +
                                 property.words(request.spec)};
  }
  return Status::ok();
}

}  // namespace

Status checkCompatible(const std::vector<Request>& requests) {
  // A barrier has no data type to compare.
  for (const Request& request : requests)
    if (request.spec.kind == OpKind::kBarrier) return compare(requests, kKind);
  for (const Property& property : kProperties) RUEDA_RETURN_IF_ERROR(compare(requests, property));
  const TensorSpec& spec = requests.front().spec;
  if (spec.kind == OpKind::kBroadcast &&
      (spec.root < 0 || spec.root >= static_cast<int>(requests.size())))
    return {Code::kInvalidArgument, "broadcast '" + base::printable(requests.front().name) +
                                        "': root " + std::to_string(spec.root) +
                                        " is not one of the " + std::to_string(requests.size()) +
                                        " ranks"};
  if (shm::reduces(spec.kind) && !shm::canReduce(spec.dtype, spec.op))
    return {Code::kInvalidArgument, kindWords(spec) + " '" +
                                        base::printable(requests.front().name) +
                                        "': " + shm::impossibleReduction(spec.dtype, spec.op)};
  return Status::ok();
}

}  // namespace rueda::negotiate
