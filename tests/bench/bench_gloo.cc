// SPDX-License-Identifier: Apache-2.0
// gloo::allreduce of floats in place, in private memory, over TCP on loopback. Not pinned: its
// event loop needs a core of its own choice. usage: bench_gloo FOLDER RANK RANKS      kinds: ring,
// bcube
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>
#include <exception>
#include <memory>

#include "tests/bench/bench_gang.h"

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

 private:
  std::shared_ptr<gloo::rendezvous::Context> context_;
  uint32_t tag_ = 0;
};

Work prepare(const Command& command, GlooRank* gloo, PrivateBuffer* buffer) {
  Work work;
  const size_t count = command.bytes / sizeof(float);
  float* tensor = buffer->ensure(command.bytes);
  if (tensor == nullptr || (command.kind != "ring" && command.kind != "bcube")) return work;
  const Algorithm algorithm = command.kind == "ring" ? Algorithm::RING : Algorithm::BCUBE;
  work.tensor = tensor;
  work.slices = {{0, count}};
  work.call = [=] { gloo->sum(tensor, count, algorithm); };
  return work;
}

}  // namespace
}  // namespace rueda::bench

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  rueda::bench::Gang gang(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  try {
    rueda::bench::GlooRank gloo(gang);
    rueda::bench::PrivateBuffer buffer;
    rueda::bench::serve(gang, [&](const rueda::bench::Command& command) {
      return rueda::bench::prepare(command, &gloo, &buffer);
    });
  } catch (const std::exception& error) {  // Gloo reports by exception.
    gang.fail(error.what());
  }
  return 0;
}
