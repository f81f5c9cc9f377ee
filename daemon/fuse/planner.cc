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

// How many ranks an average is over.
int contributors(const Decision& decision) {
  const auto leftOut = std::count_if(decision.joined.begin(), decision.joined.end(),
                                     [](const flow::JoinedRank& rank) { return rank.leftOut; });
  return decision.size() - static_cast<int>(leftOut);
}

// What stands together in one operation: decisions of one process set that combine alike.
bool sameClass(const FusedOp& op, const Decision& decision, const Policy& policy) {
  const Decision& first = op.decisions.front();
  const TensorSpec& a = first.spec();
  const TensorSpec& b = decision.spec();
  if (policy.groupsApart && first.group != decision.group) return false;
  return op.job == decision.job && first.members == decision.members && a.kind == b.kind &&
         a.dtype == b.dtype && a.op == b.op && a.prescale == b.prescale &&
         a.postscale == b.postscale && a.root == b.root &&
         op.reduce.ranks == contributors(decision);
}

// What every member gives: its tensor, or nullptr for the zeros of one that has joined.
std::vector<const char*> inputsOf(const Decision& decision) {
  std::vector<const char*> inputs;
  auto joined = decision.joined.begin();
  const auto addZeros = [&](int upTo) {
    for (; joined != decision.joined.end() && joined->place < upTo; ++joined)
      if (!joined->leftOut) inputs.push_back(nullptr);
  };
  for (const flow::Request& request : decision.requests) {
    addZeros(request.place);
    inputs.push_back(request.input.data());
  }
  addZeros(decision.size());
  return inputs;
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
      if (spec.kind == OpKind::kBroadcast && request.rank == spec.root)
        slice.inputs.push_back(request.input.data());
      slice.outputs.push_back(request.output.data());
    }
    if (spec.kind == OpKind::kAllreduce)
      for (const char* input : inputsOf(decision)) slice.inputs.push_back(input);
    return slices;
  }
  const uint64_t rowBytes = spec.rowElements() * shm::dtypeSize(spec.dtype);
  for (const flow::Request& receiver : decision.requests) {
    const shm::RowRange rows = spec.rowsFor(receiver.place, decision.size());
    if (rows.count == 0) continue;
    Slice& slice = slices.emplace_back();
    slice.count = rows.count * spec.rowElements();
    for (const char* input : inputsOf(decision))
      slice.inputs.push_back(input + rows.begin * rowBytes);  // No zeros: all are left out.
    slice.outputs.push_back(receiver.output.data());
  }
  return slices;
}

// True if every pointer of `next` begins where that of `last` ends.
bool follows(const Slice& last, const Slice& next, size_t elementBytes) {
  const uint64_t bytes = last.count * elementBytes;
  const auto adjoins = [bytes](const void* a, const void* b) {
    return a == nullptr ? b == nullptr : static_cast<const char*>(a) + bytes == b;
  };
  return last.inputs.size() == next.inputs.size() && last.outputs.size() == next.outputs.size() &&
         std::equal(last.inputs.begin(), last.inputs.end(), next.inputs.begin(), adjoins) &&
         std::equal(last.outputs.begin(), last.outputs.end(), next.outputs.begin(), adjoins);
}

FusedOp begin(const Decision& decision) {
  FusedOp op;
  const TensorSpec& spec = decision.spec();
  op.job = decision.job;
  op.kind = spec.kind;
  op.reduce = {spec.dtype, spec.op, contributors(decision), spec.prescale, spec.postscale};
  return op;
}

void append(FusedOp* op, Decision decision) {
  const size_t elementBytes = shm::dtypeSize(decision.spec().dtype);
  op->bytes += decision.spec().bytes();
  if (decision.spec().count > 0) {
    for (Slice& slice : slicesOf(decision)) {
      if (op->reduce.op != shm::ReduceOp::kAdasum && !op->slices.empty() &&
          follows(op->slices.back(), slice, elementBytes))
        op->slices.back().count += slice.count;
      else
        op->slices.push_back(std::move(slice));
    }
  }
  op->decisions.push_back(std::move(decision));
}

}  // namespace

std::vector<FusedOp> plan(std::vector<Decision> decisions, const Policy& policy) {
  std::stable_sort(decisions.begin(), decisions.end(), [](const Decision& a, const Decision& b) {
    return a.requests.front().priority > b.requests.front().priority;
  });
  std::vector<FusedOp> ops;
  for (Decision& decision : decisions) {
    const OpKind kind = decision.spec().kind;
    if (!decision.error.isOk() || shm::isAgreement(kind) || shm::gathers(kind)) continue;
    const uint64_t bytes = decision.spec().bytes();
    const size_t oldest = ops.size() > policy.lookBack ? ops.size() - policy.lookBack : 0;
    size_t at = ops.size();
    for (size_t i = ops.size(); i > oldest; --i) {
      if (!sameClass(ops[i - 1], decision, policy)) continue;
      if (ops[i - 1].bytes + bytes <= policy.fusionBytes) at = i - 1;
      break;  // An older one may have room, but then this decision would overtake the newer.
    }
    if (at == ops.size()) ops.push_back(begin(decision));
    append(&ops[at], std::move(decision));
  }
  return ops;
}

}  // namespace rueda::fuse
