// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/check.h"

#include "shm/layout.h"

namespace rueda::client {

using shm::Code;
using shm::OpKind;
using shm::Status;

std::string describe(const Operation& op) {
  return std::string(shm::opKindName(op.kind)) + " '" + std::string(op.name) + "'";
}

namespace {

Status checkMemory(const Operation& op, const SetPlace& place, int rank) {
  if (op.kind == OpKind::kBarrier || op.count == 0) return Status::ok();
  const bool needsInput = op.kind != OpKind::kBroadcast || op.root == rank;
  const uint64_t resultBytes = shm::gathers(op.kind) ? 0 : op.resultBytes(place.place, place.size);
  if ((needsInput && op.input == nullptr) || (resultBytes > 0 && op.output == nullptr))
    return {Code::kInvalidArgument, describe(op) + ": input or output is NULL"};
  const auto in = reinterpret_cast<uintptr_t>(op.input);
  const auto out = reinterpret_cast<uintptr_t>(op.output);
  const bool mayBeSame = op.kind != OpKind::kReducescatter;
  if (needsInput && resultBytes > 0 && !(in == out && mayBeSame) && in < out + resultBytes &&
      out < in + op.bytes())
    return {Code::kInvalidArgument,
            describe(op) + ": input and output overlap" + std::string(mayBeSame ? " partly" : "")};
  return Status::ok();
}

Status checkSplits(const Operation& op, int size) {
  const int64_t rows = op.shape[0];
  if (op.splits == nullptr) {
    if (rows % size == 0) return Status::ok();
    return {Code::kInvalidArgument,
            describe(op) + ": " + std::to_string(rows) + " rows cannot be dealt out evenly to " +
                std::to_string(size) + " ranks; say by splits how many each gets"};
  }
  if (op.splitCount != static_cast<uint32_t>(size))
    return {Code::kInvalidArgument, describe(op) + ": " + std::to_string(op.splitCount) +
                                        " splits for " + std::to_string(size) + " ranks"};
  int64_t left = rows;
  for (uint32_t i = 0; i < op.splitCount; ++i) {
    if (op.splits[i] < 0 || op.splits[i] > left)
      return {Code::kInvalidArgument, describe(op) + ": split " + std::to_string(i) + " is " +
                                          std::to_string(op.splits[i]) + ", but only " +
                                          std::to_string(left) + " of the " + std::to_string(rows) +
                                          " rows are left"};
    left -= op.splits[i];
  }
  return Status::ok();
}

}  // namespace

Status checkOperation(const Operation& op, const ProcessSets& sets) {
  if (op.name.size() > shm::kMaxNameBytes)
    return {Code::kInvalidArgument, "a name of " + std::to_string(op.name.size()) +
                                        " bytes; at most " + std::to_string(shm::kMaxNameBytes) +
                                        " are allowed"};
  if (op.count > shm::kMaxElements)
    return {Code::kInvalidArgument,
            describe(op) + " has " + std::to_string(op.count) + " elements"};
  if (op.kind > OpKind::kReducescatter)
    return {Code::kInvalidArgument, describe(op) + " has a call of its own"};
  const auto place = sets.placeIn(op.processSet);
  if (!place.isOk()) return {place.status().code(), describe(op) + ": " + place.status().message()};
  if (op.kind == OpKind::kBroadcast && !sets.hasRank(op.processSet, op.root))
    return {Code::kInvalidArgument, describe(op) + ": root " + std::to_string(op.root) +
                                        " is not one of the " + std::to_string(place.value().size) +
                                        " ranks"};
  if (shm::reduces(op.kind) && !shm::canReduce(op.kind, op.dtype, op.reduceOp))
    return {Code::kInvalidArgument,
            describe(op) + ": " + shm::impossibleReduction(op.kind, op.dtype, op.reduceOp)};
  if (op.lacksRows()) return Status::ok();  // All ranks hear of it together.
  if (op.kind == OpKind::kAlltoall) RUEDA_RETURN_IF_ERROR(checkSplits(op, place.value().size));
  return checkMemory(op, place.value(), sets.rank());
}

// Of a gather that is run: where its rows may go.
Status checkResult(const Operation& op) {
  if (op.output == nullptr && op.result == nullptr)
    return {Code::kInvalidArgument, describe(op) + ": neither output nor result is given"};
  const auto in = reinterpret_cast<uintptr_t>(op.input);
  const auto out = reinterpret_cast<uintptr_t>(op.output);
  if (op.output != nullptr && op.count > 0 && in < out + op.outputRoom && out < in + op.bytes())
    return {Code::kInvalidArgument, describe(op) + ": input and output overlap"};
  return Status::ok();
}

}  // namespace rueda::client
