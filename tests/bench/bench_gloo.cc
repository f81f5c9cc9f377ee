// SPDX-License-Identifier: Apache-2.0
// Gloo's collectives on floats in private memory, over TCP on loopback. Not pinned: its event loop
// needs a core of its own choice. usage: bench_gloo FOLDER RANK RANKS
// kinds: ring, bcube (allreduce in place), allgather, alltoall, broadcast, reducescatter (in place)
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <exception>
#include <memory>

#include "tests/bench/bench_gang.h"
#include "tests/bench/check_result.h"

namespace rueda::bench {
namespace {

using Algorithm = gloo::AllreduceOptions::Algorithm;

class GlooRank {
 public:
  explicit GlooRank(const Gang& gang)
      : context_(std::make_shared<gloo::rendezvous::Context>(gang.rank(), gang.ranks())) {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(gang.folder());
    context_->connectFullMesh(store, device);
  }

  void sum(float* values, size_t count, Algorithm algorithm) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(algorithm);
    options.setOutput(values, count);
    options.setReduceFunction([](void* out, const void* left, const void* right, size_t n) {
      gloo::sum<float>(out, left, right, n);
    });
    options.setTag(tag_++);
    gloo::allreduce(options);
  }

  // `count` floats of each rank into `output`.
  void allgather(float* input, size_t count, float* output, int ranks) {
    gloo::AllgatherOptions options(context_);
    options.setInput(input, count);
    options.setOutput(output, count * size_t(ranks));
    options.setTag(tag_++);
    gloo::allgather(options);
  }

  void alltoall(float* input, size_t count, float* output) {
    gloo::AlltoallOptions options(context_);
    options.setInput(input, count);
    options.setOutput(output, count);
    options.setTag(tag_++);
    gloo::alltoall(options);
  }

  void broadcast(float* values, size_t count, int root) {
    gloo::BroadcastOptions options(context_);
    options.setOutput(values, count);
    options.setRoot(root);
    options.setTag(tag_++);
    gloo::broadcast(options);
  }

  // Sums `values` over ranks; the part of this rank is then at its beginning.
  std::shared_ptr<gloo::Algorithm> reduceScatter(float* values, size_t count, int ranks) {
    return std::make_shared<gloo::ReduceScatterHalvingDoubling<float>>(
        context_, std::vector<float*>{values}, int(count),
        std::vector<int>(size_t(ranks), int(count) / ranks));
  }

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
  uint32_t tag_ = 0;
};

Work prepare(const Gang& gang, const Command& command, GlooRank* gloo, PrivateBuffer* buffer,
             PrivateBuffer* results) {
  Work work;
  const size_t count = command.bytes / sizeof(float);
  const int ranks = gang.ranks();
  const size_t part = count / size_t(ranks);
  const std::string& kind = command.kind;
  float* const tensor = buffer->ensure(command.bytes);
  float* const result =
      results->ensure(kind == "allgather" ? command.bytes * size_t(ranks) : command.bytes);
  if (tensor == nullptr || result == nullptr) return work;
  work.tensor = tensor;
  work.slices = {{0, count}};
  if (kind == "ring" || kind == "bcube") {
    const Algorithm algorithm = kind == "ring" ? Algorithm::RING : Algorithm::BCUBE;
    work.call = [=] { gloo->sum(tensor, count, algorithm); };
  } else if (kind == "allgather") {
    work.call = [=] { gloo->allgather(tensor, count, result, ranks); };
    work.wrong = [=] { return wrongBlocks(result, count, ranks); };
  } else if (kind == "alltoall") {
    work.call = [=] { gloo->alltoall(tensor, count, result); };
    work.wrong = [=] { return wrongBlocks(result, part, ranks); };
  } else if (kind == "broadcast") {
    work.call = [=] { gloo->broadcast(tensor, count, ranks - 1); };
    work.wrong = [=] { return wrongValues(tensor, count, float(ranks)); };
  } else if (kind == "reducescatter") {
    work.call = [sum = gloo->reduceScatter(tensor, count, ranks)] { sum->run(); };
    work.wrong = [=] { return wrongValues(tensor, part, float(ranks * (ranks + 1) / 2)); };
  }
  return work;
}

}  // namespace
}  // namespace rueda::bench

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  rueda::bench::Gang gang(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  try {
    rueda::bench::GlooRank gloo(gang);
    rueda::bench::PrivateBuffer buffer, results;
    rueda::bench::serve(gang, [&](const rueda::bench::Command& command) {
      return rueda::bench::prepare(gang, command, &gloo, &buffer, &results);
    });
  } catch (const std::exception& error) {  // Gloo reports by exception.
    gang.fail(error.what());
  }
  return 0;
}
