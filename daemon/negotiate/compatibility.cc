// SPDX-License-Identifier: Apache-2.0
#include "daemon/negotiate/compatibility.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>

#include "daemon/base/log.h"

namespace rueda::negotiate {
namespace {

using flow::Decision;
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
  if (freeDimensions(spec) == 0 || spec.shape.empty()) return flow::shapeText(spec.shape);
  const std::string rest = flow::shapeText({spec.shape.begin() + 1, spec.shape.end()});
  return "[*" + std::string(spec.shape.size() > 1 ? ", " : "") + rest.substr(1);
}

bool equalShapes(const TensorSpec& a, const TensorSpec& b) {
  if (a.shape.size() != b.shape.size()) return false;
  const auto first = static_cast<ptrdiff_t>(std::min(freeDimensions(a), a.shape.size()));
  return std::equal(a.shape.begin() + first, a.shape.end(), b.shape.begin() + first);
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

std::string setWords(const TensorSpec& spec) {
  return spec.kind == OpKind::kAddSet ? "ranks " + flow::shapeText(spec.ranks)
                                      : "process set " + std::to_string(spec.dissolved);
}
bool equalSets(const TensorSpec& a, const TensorSpec& b) {
  return a.ranks == b.ranks && a.dissolved == b.dissolved;
}

constexpr Property kKind = {"operations", equalKinds, kindWords};
constexpr Property kSet = {"process sets", equalSets, setWords};
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

std::string describe(const Decision& decision) {
  return kindWords(decision.spec()) + " '" + base::printable(decision.requests.front().name) + "'";
}

// With zeros in its place a rank can only stand in where zeros are what it would have given.
Status checkJoined(const Decision& decision) {
  const TensorSpec& spec = decision.spec();
  for (const flow::JoinedRank& rank : decision.joined) {
    const int number = (*decision.members)[static_cast<size_t>(rank.place)];
    if (!rank.leftOut && spec.kind != OpKind::kAllreduce)
      return {Code::kMismatch, describe(decision) + ": rank " + std::to_string(number) +
                                   " has joined, and only allreduce and barrier go on with zeros "
                                   "in its place; it can join so that it is left out instead"};
    if (spec.kind == OpKind::kBroadcast && spec.root == number)
      return {Code::kMismatch,
              describe(decision) + ": rank " + std::to_string(number) + ", its root, has joined"};
  }
  return Status::ok();
}

// A rank that has joined would not learn of a process set that comes or goes.
Status checkNobodyJoined(const Decision& decision) {
  if (decision.joined.empty()) return Status::ok();
  const auto place = static_cast<size_t>(decision.joined.front().place);
  return {Code::kMismatch, describe(decision) + ": rank " +
                               std::to_string((*decision.members)[place]) +
                               " has joined, and all ranks must take part"};
}

Status checkRows(const Decision& decision) {
  const TensorSpec& spec = decision.spec();
  if (!shm::needsRows(spec.kind) || !spec.shape.empty()) return Status::ok();
  return {Code::kMismatch, describe(decision) + ": rank zero tried to " + kindWords(spec) +
                               " a rank-zero tensor, which has no rows"};
}

// What the rank lacks it may lack since the tensors differ: that is told first.
Status checkRefusals(const Decision& decision) {
  for (const Request& request : decision.requests)
    if (!request.refusal.isOk())
      return {request.refusal.code(), describe(decision) + ": rank " +
                                          std::to_string(request.rank) +
                                          " cannot take part: " + request.refusal.message()};
  return Status::ok();
}

Status checkRoot(const Decision& decision) {
  const TensorSpec& spec = decision.spec();
  const std::vector<int>& members = *decision.members;
  if (spec.kind != OpKind::kBroadcast ||
      std::binary_search(members.begin(), members.end(), spec.root))
    return Status::ok();
  return {Code::kInvalidArgument, describe(decision) + ": root " + std::to_string(spec.root) +
                                      " is not one of the ranks " +
                                      flow::shapeText({members.begin(), members.end()})};
}

}  // namespace

Status checkCompatible(const Decision& decision) {
  const std::vector<Request>& requests = decision.requests;
  // An agreement has no data type to compare.
  for (const Request& request : requests) {
    if (!shm::isAgreement(request.spec.kind)) continue;
    RUEDA_RETURN_IF_ERROR(compare(requests, kKind));
    RUEDA_RETURN_IF_ERROR(compare(requests, kSet));
    return request.spec.kind == OpKind::kBarrier ? Status::ok() : checkNobodyJoined(decision);
  }
  for (const Property& property : kProperties) RUEDA_RETURN_IF_ERROR(compare(requests, property));
  RUEDA_RETURN_IF_ERROR(checkJoined(decision));
  RUEDA_RETURN_IF_ERROR(checkRows(decision));
  RUEDA_RETURN_IF_ERROR(checkRoot(decision));
  const TensorSpec& spec = decision.spec();
  if (shm::reduces(spec.kind) && !shm::canReduce(spec.kind, spec.dtype, spec.op))
    return {Code::kInvalidArgument,
            describe(decision) + ": " + shm::impossibleReduction(spec.kind, spec.dtype, spec.op)};
  return checkRefusals(decision);
}

}  // namespace rueda::negotiate
