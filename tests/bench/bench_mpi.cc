// SPDX-License-Identifier: Apache-2.0
// MPI's collectives on floats in private memory, for whichever MPI it is compiled against.
// usage: mpirun … bench_mpi FOLDER      kinds: sync, resnet-sync, resnet-async, resnet-flat (all
// Allreduce in place), allgather, alltoall, broadcast, reducescatter
#include <mpi.h>

#include "tests/bench/bench_gang.h"
#include "tests/bench/check_result.h"

namespace rueda::bench {
namespace {

void sumInPlaceOverRanks(float* values, size_t count) {
  MPI_Allreduce(MPI_IN_PLACE, values, int(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

void sumEachStarted(float* tensor, const std::vector<Slice>& slices) {
  std::vector<MPI_Request> requests(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    MPI_Iallreduce(MPI_IN_PLACE, tensor + slices[i].offset, int(slices[i].count), MPI_FLOAT,
                   MPI_SUM, MPI_COMM_WORLD, &requests[i]);
  }
  MPI_Waitall(int(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
}

// A collective that does not sum in place: `result` gets what it makes of `tensor`. False for other
// kinds.
bool makeCollective(const Command& command, float* tensor, PrivateBuffer* results, Work* work) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int count = int(command.bytes / sizeof(float));
  const int part = count / ranks;
  const int most = command.kind == "allgather" ? count * ranks : count;
  if (command.kind == "broadcast") {
    // From the last rank: rank 0 says how long it took, and a root may leave before the others have
    // anything.
    work->call = [=] { MPI_Bcast(tensor, count, MPI_FLOAT, ranks - 1, MPI_COMM_WORLD); };
    work->wrong = [=] { return wrongValues(tensor, size_t(count), float(ranks)); };
    return true;
  }
  float* const result = results->ensure(size_t(most) * sizeof(float));
  if (command.kind == "allgather") {
    work->call = [=] {
      MPI_Allgather(tensor, count, MPI_FLOAT, result, count, MPI_FLOAT, MPI_COMM_WORLD);
    };
    work->wrong = [=] { return wrongBlocks(result, size_t(count), ranks); };
  } else if (command.kind == "alltoall") {
    work->call = [=] {
      MPI_Alltoall(tensor, part, MPI_FLOAT, result, part, MPI_FLOAT, MPI_COMM_WORLD);
    };
    work->wrong = [=] { return wrongBlocks(result, size_t(part), ranks); };
  } else if (command.kind == "reducescatter") {
    work->call = [=] {
      MPI_Reduce_scatter_block(tensor, result, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    work->wrong = [=] { return wrongValues(result, size_t(part), float(ranks * (ranks + 1) / 2)); };
  } else {
    return false;
  }
  return true;
}

Work prepare(const Command& command, PrivateBuffer* buffer, PrivateBuffer* results) {
  Work work;
  const bool set = command.kind.rfind("resnet-", 0) == 0;
  work.slices = set ? resnet50Slices() : std::vector<Slice>{{0, command.bytes / sizeof(float)}};
  if (command.kind == "resnet-flat") work.slices = {{0, totalCount(work.slices)}};
  float* tensor = buffer->ensure(spanOf(work.slices) * sizeof(float));
  if (tensor == nullptr) return work;
  work.tensor = tensor;
  if (makeCollective(command, tensor, results, &work)) return work;
  const std::vector<Slice> slices = work.slices;
  if (command.kind == "resnet-async") {
    work.call = [=] { sumEachStarted(tensor, slices); };
  } else if (command.kind == "resnet-sync") {
    work.call = [=] {
      for (const Slice& slice : slices) sumInPlaceOverRanks(tensor + slice.offset, slice.count);
    };
  } else if (command.kind == "sync" || command.kind == "resnet-flat") {
    const size_t count = slices[0].count;
    work.call = [=] { sumInPlaceOverRanks(tensor, count); };
  }
  return work;
}

}  // namespace
}  // namespace rueda::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc < 2) MPI_Abort(MPI_COMM_WORLD, 1);
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  rueda::bench::pinToCore(rank);
  {
    rueda::bench::Gang gang(argv[1], rank, ranks);
    rueda::bench::PrivateBuffer buffer, results;
    rueda::bench::serve(gang, [&](const rueda::bench::Command& command) {
      return rueda::bench::prepare(command, &buffer, &results);
    });
  }
  MPI_Finalize();
  return 0;
}
