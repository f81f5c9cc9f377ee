// SPDX-License-Identifier: Apache-2.0
#pragma once

// Adasum (Maleki et al., 2020): two gradients a and b become
//   (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b,
// their sum where they are orthogonal, their mean where they are parallel. More than two are
// combined in the same balanced tree as sums (shm/reduce_kernels.h), each tensor for itself.

#include <memory>
#include <vector>

#include "daemon/flow/fused_op.h"

namespace rueda::execute {

// The work of one fused operation, in phases: those of a phase may run at once and in any order, in
// any threads; the next phase begins when all of them have ended. Each level of the tree takes
// three: dot products of pieces, their totals, and weighted sums; the last phase scales the result
// and writes it to every output.
//
// Dot products are float64 sums in an order that is fixed by the tensor alone, so results do not
// depend on who computes them. Weighted sums are in float64 for float64, else in float32; what is
// between two levels is kept in the outputs, in the tensor's type, hence rounded at each. Zeros
// (inputs of nullptr) change nothing and are skipped.
class Adasum {
 public:
  // REQUIRES: op->reduce.op is kAdasum and canReduce; no slice is empty or has zeros only;
  // outputs[i] is inputs[j] only for the same rank.
  explicit Adasum(std::shared_ptr<const flow::FusedOp> op);

  size_t phases() const { return 3 * levels_ + 1; }
  // At least 1.
  size_t pieces() const { return pieces_.size(); }
  void runPiece(size_t phase, size_t piece);

 private:
  // A rank's tensor, or what has been made of several, and where results go.
  struct Part {
    const char* value = nullptr;
    char* room = nullptr;
  };
  struct Products {
    double both = 0;
    double left = 0;
    double right = 0;

    void add(const Products& other) {
      both += other.both;
      left += other.left;
      right += other.right;
    }
  };
  // A range of one slice.
  struct Range {
    size_t slice = 0;
    uint64_t begin = 0;  // Elements.
    uint64_t count = 0;
    size_t first = 0;  // Piece with which the slice begins.
    size_t end = 0;    // And behind which it ends.
  };

  template <typename T>
  void run(size_t phase, size_t piece);
  template <typename T>
  void multiply(const Range& range, const Part& left, const Part& right, Products* products) const;
  template <typename T>
  void weigh(const Range& range, const Part& left, const Part& right, const Products& sums) const;
  template <typename T>
  void spread(const Range& range) const;
  Part partOf(size_t slice, size_t level, size_t index) const;

  const std::shared_ptr<const flow::FusedOp> op_;
  std::vector<std::vector<Part>> leaves_;  // By slice.
  std::vector<Range> pieces_;
  size_t pairs_ = 0;   // Of a level at most.
  size_t levels_ = 0;  // Of the slice that has most.
  // Each is written by one piece of a phase, and read in the next one.
  std::vector<Products> products_;  // By piece, then pair.
  std::vector<Products> totals_;    // By slice, then pair.
};

}  // namespace rueda::execute
