// SPDX-License-Identifier: Apache-2.0
// MPI_Allreduce of floats in place, in private memory, for whichever MPI it is compiled against.
// usage: mpirun … bench_mpi FOLDER      kinds: sync, resnet-sync, resnet-async, resnet-flat
#include <mpi.h>

#include "tests/bench/bench_gang.h"

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

Work prepare(const Command& command, PrivateBuffer* buffer) {
  Work work;
  const bool set = command.kind.rfind("resnet-", 0) == 0;
  work.slices = set ? resnet50Slices() : std::vector<Slice>{{0, command.bytes / sizeof(float)}};
  if (command.kind == "resnet-flat") work.slices = {{0, totalCount(work.slices)}};
  float* tensor = buffer->ensure(spanOf(work.slices) * sizeof(float));
  if (tensor == nullptr) return work;
  work.tensor = tensor;
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
    rueda::bench::PrivateBuffer buffer;
    rueda::bench::serve(gang, [&](const rueda::bench::Command& command) {
      return rueda::bench::prepare(command, &buffer);
    });
  }
  MPI_Finalize();
  return 0;
}
