// SPDX-License-Identifier: Apache-2.0
#include "daemon/fuse/planner.h"

#include <algorithm>
#include <utility>

namespace rueda::fuse {
namespace {

using flow::Decision;
using flow::FusedOp;
using flow::Slice;
using flow::TensorSpec;
using shm::OpKind;

// How far back a decision may look for an operation to join: bounds planning to linear time.
constexpr size_t kLookBack = 16;

bool sameClass(const FusedOp& op, const Decision& decision) {
  const TensorSpec& a = op.decisions.front().spec();
  const TensorSpec& b = decision.spec();
  return op.job == decision.job && a.kind == b.kind && a.dtype == b.dtype && a.op == b.op &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.root == b.root;
}

// What is combined element by element: one range, or for a reducescatter one for each rank, which
// goes to that rank alone.
std::vector<Slice> slicesOf(const Decision& decision) {
  const TensorSpec& spec = decision.spec();
  std::vector<Slice> slices;
  if (spec.kind != OpKind::kReducescatter) {
    Slice& slice = slices.emplace_back();
    slice.count = spec.count;
    for (const flow::Request& request : decision.requests) {
      if (spec.kind != OpKind::kBroadcast || request.rank == spec.root)
        slice.inputs.push_back(request.input.data());
      slice.outputs.push_back(request.output.data());
    }
    return slices;
  }
  const uint64_t rowElements = spec.rowElements();
  const int size = static_cast<int>(decision.requests.size());
  for (const flow::Request& receiver : decision.requests) {
    const shm::RowRange rows = spec.rowsFor(receiver.rank, size);
    if (rows.count == 0) continue;
    Slice& slice = slices.emplace_back();
    slice.count = rows.count * rowElements;
    for (const flow::Request& request : decision.requests)
      slice.inputs.push_back(request.input.data() +
                             rows.begin * rowElements * shm::dtypeSize(spec.dtype));
    slice.outputs.push_back(receiver.output.data());
  }
  return slices;
}

// True if every pointer of `next` begins where that of `last` ends.
bool follows(const Slice& last, const Slice& next, size_t elementBytes) {
  const uint64_t bytes = last.count * elementBytes;
  const auto adjoins = [bytes](const void* a, const void* b) {
    return static_cast<const char*>(a) + bytes == b;
  };
  return std::equal(last.inputs.begin(), last.inputs.end(), next.inputs.begin(), adjoins) &&
         std::equal(last.outputs.begin(), last.outputs.end(), next.outputs.begin(), adjoins);
}

FusedOp begin(const Decision& decision) {
  FusedOp op;
  const TensorSpec& spec = decision.spec();
  op.job = decision.job;
  op.kind = spec.kind;
  op.reduce = {spec.dtype, spec.op, static_cast<int>(decision.requests.size()), spec.prescale,
               spec.postscale};
  return op;
}

void append(FusedOp* op, Decision decision) {
  const size_t elementBytes = shm::dtypeSize(decision.spec().dtype);
  op->bytes += decision.spec().bytes();
  if (decision.spec().count > 0) {
    for (Slice& slice : slicesOf(decision)) {
      if (!op->slices.empty() && follows(op->slices.back(), slice, elementBytes))
        op->slices.back().count += slice.count;
      else
        op->slices.push_back(std::move(slice));
    }
  }
  op->decisions.push_back(std::move(decision));
}

}  // namespace

std::vector<FusedOp> plan(std::vector<Decision> decisions, uint64_t fusionBytes) {
  std::vector<FusedOp> ops;
  for (Decision& decision : decisions) {
    if (!decision.error.isOk() || decision.spec().kind == OpKind::kBarrier ||
        shm::gathers(decision.spec().kind))
      continue;
    const uint64_t bytes = decision.spec().bytes();
    const size_t oldest = ops.size() > kLookBack ? ops.size() - kLookBack : 0;
    size_t at = ops.size();
    for (size_t i = ops.size(); i > oldest; --i) {
      if (!sameClass(ops[i - 1], decision)) continue;
      if (ops[i - 1].bytes + bytes <= fusionBytes) at = i - 1;
      break;  // An older one may have room, but then this decision would overtake the newer.
    }
    if (at == ops.size()) ops.push_back(begin(decision));
    append(&ops[at], std::move(decision));
  }
  return ops;
}

}  // namespace rueda::fuse
