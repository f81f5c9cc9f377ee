// SPDX-License-Identifier: Apache-2.0
#pragma once

// Adasum (Maleki et al., 2020): two gradients a and b become
//   (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b,
// their sum where they are orthogonal, their mean where they are parallel. More than two are
// combined in the same balanced tree as sums (shm/reduce_kernels.h). Pure; any thread.

#include "daemon/flow/fused_op.h"

namespace rueda::execute {

// Combines one whole tensor; zeros (inputs of nullptr) change nothing and are skipped. Dot products
// are float64 sums in a fixed order, so results do not depend on who computes them; the weighted
// sum is in float64 for float64, else in float32. What is between two steps of the tree is kept in
// the outputs, in the tensor's type. Both scales are applied to the result. REQUIRES: spec.op is
// kAdasum and canReduce; outputs[i] is inputs[j] only for the same rank.
void adasum(const shm::ReduceSpec& spec, const flow::Slice& slice);

}  // namespace rueda::execute
