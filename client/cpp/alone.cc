// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/alone.h"

#include <cstring>

#include "client/cpp/check.h"

namespace rueda::client {

using shm::Code;
using shm::OpKind;
using shm::Status;

namespace {

Status gatherAlone(const Operation& op, Memory& memory) {
  const int64_t rows = op.splits == nullptr ? op.shape[0] : op.splits[0];
  const uint64_t bytes = static_cast<uint64_t>(rows) * op.rowBytes();
  if (op.received != nullptr) op.received[0] = rows;
  if (op.output != nullptr && bytes > op.outputRoom)
    return noRoom(op.kind, op.name, bytes, op.outputRoom);
  void* to = op.output;
  if (to == nullptr && bytes > 0) {
    RUEDA_ASSIGN_OR_RETURN(to, memory.allocate(bytes));
  }
  if (bytes > 0) std::memcpy(to, op.input, bytes);
  if (op.output == nullptr) *op.result = to;
  return Status::ok();
}

}  // namespace

Status runAlone(const Operation& op, Memory& memory) {
  if (op.lacksRows()) return {Code::kMismatch, describe(op) + ": a rank-zero tensor has no rows"};
  if (shm::gathers(op.kind)) return gatherAlone(op, memory);
  if (op.count == 0 || op.kind == OpKind::kBarrier) return Status::ok();
  const void* input = op.input;
  void* output = op.output;
  if (op.kind == OpKind::kBroadcast) {
    if (output != input) std::memcpy(output, input, op.bytes());
    return Status::ok();
  }
  shm::ReduceSpec spec = op.reduceSpec(1);
  if (spec.op == shm::ReduceOp::kAdasum) spec.op = shm::ReduceOp::kSum;
  shm::reduce(spec, &input, 1, &output, 1, op.count);
  return Status::ok();
}

}  // namespace rueda::client
