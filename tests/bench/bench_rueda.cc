// SPDX-License-Identifier: Apache-2.0
// rueda's allreduce over the C ABI. A tensor lies in memory from rueda_alloc ("shared") or in
// memory of the process alone ("private"). usage: bench_rueda FOLDER RANK RANKS SOCKET JOB
// [isolated] kinds: {shared,private}-{sync,async}, resnet-{sync,async,flat,mixed}, small161-mixed,
// private-resnet-{sync,async,flat}, {shared,private}-{allgather,alltoall,broadcast,reducescatter},
// shared-{owned,async}-{allgather,alltoall} (the library places the result, or it is waited for),
//        open (the first), reopen (close and open again), memory (KiB before open / after it / now)
#include <cstdio>
#include <cstdlib>

#include "client/c/rueda.h"
#include "tests/bench/bench_gang.h"
#include "tests/bench/check_result.h"

namespace rueda::bench {
namespace {

constexpr size_t kAlignment = 64;

// Proportional set size of this process in KiB: shared pages count by their share.
long proportionalKib() {
  FILE* file = std::fopen("/proc/self/smaps_rollup", "r");
  if (file == nullptr) return -1;
  char line[256];
  long kib = -1;
  while (kib < 0 && std::fgets(line, sizeof line, file) != nullptr) {
    if (std::sscanf(line, "Pss: %ld kB", &kib) == 1) break;
  }
  std::fclose(file);
  return kib;
}

struct JobName {
  std::string socket, job;
  bool isolated = false;
};

class RuedaRank {
 public:
  RuedaRank(Gang& gang, const JobName& name) : gang_(gang), name_(name) {
    beforeOpenKib_ = proportionalKib();
    gang_.barrier();
    firstOpenUs_ = open();
    afterOpenKib_ = proportionalKib();
  }
  RuedaRank(const RuedaRank&) = delete;
  RuedaRank& operator=(const RuedaRank&) = delete;
  ~RuedaRank() { rueda_close(session_); }

  Work prepare(const Command& command) {
    if (command.kind == "open") return answerOf(firstOpenUs_);
    if (command.kind == "memory") return memoryWork();
    if (command.kind == "reopen") {
      Work work;
      work.touch = false;
      work.call = [this] { reopen(); };
      return work;
    }
    const std::string kPrivate = "private-";
    const bool isPrivate = command.kind.rfind(kPrivate, 0) == 0;
    const std::string kind = isPrivate || command.kind.rfind("shared-", 0) == 0
                                 ? command.kind.substr(command.kind.find('-') + 1)
                                 : command.kind;
    return tensorWork(kind, command.bytes, isPrivate);
  }

 private:
  // Ends the process when a call failed.
  void need(int32_t code, const char* what) {
    if (code != RUEDA_OK) gang_.fail(std::string(what) + ": " + rueda_last_error());
  }

  // Opens the session; how long that took, in microseconds.
  double open() {
    rueda_options options{};
    options.struct_size = sizeof options;
    need(rueda_options_init(&options), "rueda_options_init");
    options.rank = options.local_rank = gang_.rank();
    options.size = options.local_size = gang_.ranks();
    options.cross_rank = 0;
    options.cross_size = 1;
    options.isolated = name_.isolated ? 1 : 0;
    std::snprintf(options.socket, sizeof options.socket, "%s", name_.socket.c_str());
    std::snprintf(options.job, sizeof options.job, "%s", name_.job.c_str());
    const uint64_t begin = nowNs();
    need(rueda_open(&options, &session_), "rueda_open");
    return double(nowNs() - begin) / 1e3;
  }

  void reopen() {
    rueda_close(session_);
    session_ = nullptr;
    shared_ = nullptr;  // The session's memory went with it.
    sharedBytes_ = 0;
    open();
  }

  // At least `bytes` from rueda_alloc.
  float* ensureShared(size_t bytes) {
    if (bytes <= sharedBytes_) return static_cast<float*>(shared_);
    if (shared_ != nullptr) need(rueda_free(session_, shared_), "rueda_free");
    shared_ = nullptr;
    sharedBytes_ = 0;
    need(rueda_alloc(session_, bytes, &shared_), "rueda_alloc");
    sharedBytes_ = bytes;
    return static_cast<float*>(shared_);
  }

  Work answerOf(double us) {
    char line[128];
    std::snprintf(line, sizeof line, "ok %.4f %.4f %.4f 1", us, us, us);
    Work work;
    work.answer = line;
    return work;
  }

  Work memoryWork() {
    char line[128];
    std::snprintf(line, sizeof line, "ok %ld %ld %ld 1", beforeOpenKib_, afterOpenKib_,
                  proportionalKib());
    Work work;
    work.answer = line;
    return work;
  }

  // One operation for each slice, named by its index.
  std::vector<rueda_op> operationsFor(float* tensor, const std::vector<Slice>& slices) {
    names_.clear();
    shapes_.clear();
    for (size_t i = 0; i < slices.size(); ++i) {
      names_.push_back("gradient." + std::to_string(i) + "." + std::to_string(slices[i].count));
      shapes_.push_back(int64_t(slices[i].count));
    }
    std::vector<rueda_op> operations;
    for (size_t i = 0; i < slices.size(); ++i) {
      rueda_op op{};
      op.struct_size = sizeof op;
      op.kind = RUEDA_ALLREDUCE;
      op.dtype = RUEDA_FLOAT32;
      op.reduce_op = RUEDA_SUM;
      op.name = names_[i].c_str();
      op.input = op.output = tensor + slices[i].offset;
      op.shape = &shapes_[i];
      op.ndim = 1;
      operations.push_back(op);
    }
    return operations;
  }

  void runEach() {
    for (const rueda_op& op : operations_) need(rueda_run(session_, &op), "rueda_run");
  }

  // Submits one by one, as a backward pass does, then waits for all.
  void submitEach() {
    for (size_t i = 0; i < operations_.size(); ++i) {
      need(rueda_submit(session_, &operations_[i], 1, &handles_[i]), "rueda_submit");
    }
    for (rueda_handle handle : handles_) need(rueda_wait(session_, handle, 0), "rueda_wait");
  }

  // As one group, so that all of them are fused as the daemon likes.
  void submitGroup() {
    const auto count = static_cast<uint32_t>(operations_.size());
    need(rueda_submit(session_, operations_.data(), count, handles_.data()), "rueda_submit");
    for (rueda_handle handle : handles_) need(rueda_wait(session_, handle, 0), "rueda_wait");
  }

  // Every second gradient becomes one of float16, twice as long.
  void makeMixed(Work* work) {
    for (size_t i = 1; i < operations_.size(); i += 2) {
      operations_[i].dtype = RUEDA_FLOAT16;
      shapes_[i] *= 2;
    }
    work->call = [this] { submitGroup(); };
    const float sum = float(gang_.ranks() * (gang_.ranks() + 1) / 2);
    work->wrong = [tensor = work->tensor, slices = work->slices, sum] {
      std::string wrong;
      for (size_t i = 0; i < slices.size() && wrong.empty(); i += 2)
        wrong = wrongValues(tensor + slices[i].offset, slices[i].count, sum);
      return wrong;
    };
  }

  // Turns the one operation of `work` into a collective that does not sum in place.
  void makeCollective(const std::string& kind, Work* work) {
    rueda_op& op = operations_[0];
    const size_t count = work->slices[0].count;
    const int ranks = gang_.ranks();
    const size_t part = count / size_t(ranks);
    if (kind == "broadcast") {
      op.kind = RUEDA_BROADCAST;
      op.root = ranks - 1;
      const float* tensor = work->tensor;
      work->call = [this] { runEach(); };
      work->wrong = [=] { return wrongValues(tensor, count, float(ranks)); };
    } else if (kind == "reducescatter") {
      op.kind = RUEDA_REDUCESCATTER;
      float* const output = work->tensor + resultOffset(count);
      op.output = output;
      work->call = [this] { runEach(); };
      work->wrong = [=] { return wrongValues(output, part, float(ranks * (ranks + 1) / 2)); };
    } else if (isGather(kind)) {
      op.kind = isAllgather(kind) ? RUEDA_ALLGATHER : RUEDA_ALLTOALL;
      const size_t block = isAllgather(kind) ? count : part;
      op.output = nullptr;
      if (kind == "allgather" || kind == "alltoall") {
        op.output = work->tensor + resultOffset(count);
        op.output_bytes = block * size_t(ranks) * sizeof(float);
        gathered_ = static_cast<const float*>(op.output);
        work->call = [this] { runEach(); };
      } else if (kind.rfind("owned-", 0) == 0) {
        op.result = &owned_;
        work->call = [this] { gatherOwned(); };
      } else {
        work->call = [this] { gatherStarted(); };
      }
      work->wrong = [=] { return wrongBlocks(gathered_, block, ranks); };
    }
  }

  static bool isAllgather(const std::string& kind) {
    return kind.find("allgather") != std::string::npos;
  }
  static bool isGather(const std::string& kind) {
    return isAllgather(kind) || kind.find("alltoall") != std::string::npos;
  }
  // Where the result of a collective lies behind a tensor of `count` floats.
  static size_t resultOffset(size_t count) {
    return (count + kAlignment - 1) / kAlignment * kAlignment;
  }

  // The rows stay readable until the next call gives them back.
  void gatherOwned() {
    if (owned_ != nullptr) need(rueda_free(session_, owned_), "rueda_free");
    need(rueda_run(session_, &operations_[0]), "rueda_run");
    gathered_ = static_cast<const float*>(owned_);
  }

  void gatherStarted() {
    releaseStarted();
    need(rueda_submit(session_, &operations_[0], 1, &handles_[0]), "rueda_submit");
    need(rueda_wait(session_, handles_[0], 0), "rueda_wait");
    isStarted_ = true;
    rueda_gathered result{};
    result.struct_size = sizeof result;
    need(rueda_gather_result(session_, handles_[0], &result), "rueda_gather_result");
    gathered_ = static_cast<const float*>(result.data);
  }

  void releaseStarted() {
    if (isStarted_) need(rueda_release(session_, handles_[0]), "rueda_release");
    isStarted_ = false;
  }

  Work tensorWork(const std::string& kind, size_t bytes, bool isPrivate) {
    Work work;
    const bool set = kind.rfind("resnet-", 0) == 0;
    work.slices = set ? resnet50Slices() : std::vector<Slice>{{0, bytes / sizeof(float)}};
    if (kind == "small161-mixed") {
      work.slices.clear();
      for (size_t i = 0; i < 161; ++i) work.slices.push_back({i * 64, 64});
    }
    if (kind == "resnet-flat") work.slices = {{0, totalCount(work.slices)}};
    size_t needed = (spanOf(work.slices) + kAlignment) * sizeof(float);
    // The result lies behind.
    if (kind == "reducescatter" || kind == "alltoall") needed *= 2;
    if (kind == "allgather") needed *= size_t(gang_.ranks()) + 1;
    work.tensor = isPrivate ? private_.ensure(needed) : ensureShared(needed);
    if (work.tensor == nullptr) return work;
    releaseStarted();
    if (owned_ != nullptr) need(rueda_free(session_, owned_), "rueda_free");
    owned_ = nullptr;
    operations_ = operationsFor(work.tensor, work.slices);
    handles_.assign(operations_.size(), 0);
    if (kind == "sync" || kind == "resnet-sync" || kind == "resnet-flat") {
      work.call = [this] { runEach(); };
    } else if (kind == "async" || kind == "resnet-async") {
      work.call = [this] { submitEach(); };
    } else if (kind == "resnet-mixed" || kind == "small161-mixed") {
      makeMixed(&work);
    } else {
      makeCollective(kind, &work);
    }
    return work;
  }

  Gang& gang_;
  const JobName name_;
  rueda_session* session_ = nullptr;
  void* shared_ = nullptr;
  size_t sharedBytes_ = 0;
  PrivateBuffer private_;
  const float* gathered_ = nullptr;  // The last result of a gather.
  void* owned_ = nullptr;            // It, if the library has placed it.
  bool isStarted_ = false;           // It is that of handles_[0], which has not been released.
  std::vector<std::string> names_;
  std::vector<int64_t> shapes_;
  std::vector<rueda_op> operations_;
  std::vector<rueda_handle> handles_;
  double firstOpenUs_ = 0;
  long beforeOpenKib_ = 0, afterOpenKib_ = 0;
};

}  // namespace
}  // namespace rueda::bench

int main(int argc, char** argv) {
  if (argc < 6) return 1;
  const int rank = std::atoi(argv[2]);
  rueda::bench::pinToCore(rank);
  rueda::bench::Gang gang(argv[1], rank, std::atoi(argv[3]));
  rueda::bench::JobName name{argv[4], argv[5], argc > 6 && std::string(argv[6]) == "isolated"};
  rueda::bench::RuedaRank self(gang, name);
  rueda::bench::serve(gang,
                      [&](const rueda::bench::Command& command) { return self.prepare(command); });
  return 0;
}
