// SPDX-License-Identifier: Apache-2.0
#pragma once

// One collective as its caller describes it, with borrowed memory. Values; any thread.

#include <cstdint>
#include <string_view>

#include "shm/dtype.h"
#include "shm/reduce_kernels.h"
#include "shm/status.h"

namespace rueda::client {

struct Operation {
  shm::OpKind kind = shm::OpKind::kAllreduce;
  shm::DType dtype = shm::DType::kFloat32;
  shm::ReduceOp reduceOp = shm::ReduceOp::kSum;
  std::string_view name;
  const void* input = nullptr;
  void* output = nullptr;
  const int64_t* shape = nullptr;
  uint32_t ndim = 0;
  uint64_t count = 1;  // Product of shape.
  int root = 0;
  const int64_t* splits = nullptr;  // Alltoall: rows for each rank; nullptr: as many for each.
  uint32_t splitCount = 0;
  // Of a kind that gathers: where the rows of all ranks go. Either `output`, which has room for
  // `outputRoom` bytes, or a block of Memory, whose address *result gets (nullptr for no bytes).
  uint64_t outputRoom = 0;
  void** result = nullptr;
  int64_t* received = nullptr;  // Gets the rows from each rank; may be nullptr.
  double prescale = 1.0;
  double postscale = 1.0;
  uint32_t processSet =
      0;                 // 0: all ranks of the job. What is "rank" and "size" below is of the set.
  int32_t priority = 0;  // Of what is complete at one moment the highest runs first.

  // A scalar of a kind that deals out rows: the daemon tells all ranks that it cannot be done.
  bool lacksRows() const { return shm::needsRows(kind) && ndim == 0; }
  uint64_t bytes() const { return count * shm::dtypeSize(dtype); }
  uint64_t rowBytes() const;  // REQUIRES: ndim > 0.
  // What `rank` gets, but for kinds that gather: how much, and where that lies in a tensor of the
  // whole result.
  uint64_t resultBytes(int rank, int size) const;
  uint64_t resultBegin(int rank, int size) const;
  shm::ReduceSpec reduceSpec(int ranks) const {
    return {dtype, reduceOp, ranks, prescale, postscale};
  }
};

// 32-bit signature of everything that must agree between ranks; never 0. Equal operations give
// equal signatures on all ranks; two that differ collide once in 2^32. The first dimension and the
// splits of a kind that gathers may differ.
uint32_t signatureOf(const Operation& op);

// One of that name is on its way in this process.
shm::Status inFlight(shm::OpKind kind, std::string_view name);
// The rows of a gather, `bytes`, do not fit where its caller wants them.
shm::Status noRoom(shm::OpKind kind, std::string_view name, uint64_t bytes, uint64_t room);

}  // namespace rueda::client
