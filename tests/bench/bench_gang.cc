// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/bench_gang.h"

#include <fcntl.h>
#include <immintrin.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace rueda::bench {
namespace {

// Spins with a pause this often before it yields: about 40 us, the longest skew seen between two
// ranks with a core each.
constexpr int kPausesBeforeYield = 2000;
// From the word of rank 0 to the common start: several trips between cores.
constexpr uint64_t kStartDelayNs = 2000;
constexpr uint64_t kBarrierLimitNs = 60'000'000'000u;

void rewrite(const Work& work, float value) {
  for (const Slice& slice : work.slices) {
    std::fill_n(work.tensor + slice.offset, slice.count, value);
  }
}

// Empty when every element of the result holds the sum, else a text with the first one that does
// not.
std::string wrongSum(const Work& work, int ranks) {
  const float expected = float(ranks * (ranks + 1) / 2);
  for (const Slice& slice : work.slices) {
    for (size_t i = 0; i < slice.count; ++i) {
      const float got = work.tensor[slice.offset + i];
      if (got != expected) {
        return "wrong sum at element " + std::to_string(slice.offset + i) + ": " +
               std::to_string(got) + " instead of " + std::to_string(expected);
      }
    }
  }
  return "";
}

// Up to this payload calls follow each other with no barrier between them: they take no longer than
// a barrier's own skew, and keep the ranks in step by themselves.
constexpr size_t kBackToBackBytes = 4096;

// Runs the command's calls; leaves their times in `us`. Empty, or what went wrong.
std::string measure(Gang& gang, const Work& work, int iterations, std::vector<double>* us) {
  const int warmUps = std::max(1, iterations / 10);
  const bool meet = work.touch && totalCount(work.slices) * sizeof(float) > kBackToBackBytes;
  us->reserve(size_t(iterations));
  for (int i = -warmUps; i < iterations; ++i) {
    if (work.touch) rewrite(work, float(gang.rank() + 1));
    if (meet) gang.startTogether();
    const uint64_t begin = nowNs();
    work.call();
    const uint64_t end = nowNs();
    if (i >= 0) us->push_back(double(end - begin) / 1e3);
    if (work.touch && (i == -warmUps || i + 1 == iterations)) {
      const std::string wrong = work.wrong ? work.wrong() : wrongSum(work, gang.ranks());
      if (!wrong.empty()) return wrong;
      gang.barrier();  // Nobody rewrites while a slower rank still checks.
    }
  }
  return "";
}

std::string format(const Summary& summary) {
  char line[160];
  std::snprintf(line, sizeof line, "ok %.4f %.4f %.4f %zu", summary.p50Us, summary.p99Us,
                summary.meanUs, summary.count);
  return line;
}

}  // namespace

Gang::Gang(const std::string& folder, int rank, int ranks)
    : folder_(folder), rank_(rank), ranks_(ranks), crowded_(ranks > onlineCores()) {
  replies_ = open((folder + "/reply").c_str(), O_WRONLY | O_CLOEXEC);
  if (replies_ < 0 || ranks > kMaxRanks) {
    std::perror((folder + "/reply").c_str());
    std::_Exit(1);
  }
  const std::string self = std::to_string(rank);
  const int lines = open((folder + "/lines").c_str(), O_RDWR | O_CLOEXEC);
  if (lines < 0) fail("cannot open the gang's shared memory");
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, lines, 0);
  close(lines);
  if (memory == MAP_FAILED) fail("cannot map the gang's shared memory");
  lines_ = static_cast<Line*>(memory);
  if (FILE* file = std::fopen((folder + "/pid." + self).c_str(), "w")) {
    std::fprintf(file, "%d\n", int(getpid()));
    std::fclose(file);
  }
  commands_ = open((folder + "/command." + self).c_str(), O_RDONLY | O_CLOEXEC);
  if (commands_ < 0) fail("cannot open the command pipe");
}

Gang::~Gang() {
  if (lines_ != nullptr) munmap(lines_, 4096);
  if (commands_ >= 0) close(commands_);
  close(replies_);
}

void Gang::barrier() {
  ++sequence_;
  // Pairs with the acquire below: what this rank wrote before is seen by whoever passes.
  lines_[rank_].arrived.store(sequence_, std::memory_order_release);
  uint64_t begin = 0;
  for (int other = 0; other < ranks_; ++other) {
    for (int spins = 0; lines_[other].arrived.load(std::memory_order_acquire) < sequence_;) {
      if (!crowded_ && spins < kPausesBeforeYield) {
        ++spins;
        _mm_pause();
        continue;
      }
      sched_yield();
      const uint64_t now = nowNs();
      if (begin == 0) begin = now;
      if (now - begin > kBarrierLimitNs) {
        fail("rank " + std::to_string(other) + " did not come to the barrier");
      }
    }
  }
}

void Gang::startTogether() {
  barrier();
  if (crowded_) return;
  std::atomic<uint64_t>& start = lines_[0].startNs;
  if (rank_ == 0) start.store(nowNs() + kStartDelayNs, std::memory_order_release);
  // All ranks have passed the barrier or are about to, so rank 0's word comes at once.
  uint64_t moment = start.load(std::memory_order_acquire);
  while (moment == lastStartNs_) moment = start.load(std::memory_order_acquire);
  lastStartNs_ = moment;
  while (nowNs() < moment) _mm_pause();
}

bool Gang::next(Command* command) {
  for (;;) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      std::istringstream line(unread_.substr(0, end));
      unread_.erase(0, end + 1);
      if (line >> command->kind >> command->bytes >> command->iterations) return true;
      fail("malformed command");
    }
    char block[256];
    const ssize_t got = read(commands_, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    unread_.append(block, size_t(got));
  }
}

void Gang::reply(const std::string& line) {
  const std::string text = line + "\n";  // Below PIPE_BUF, so lines of two ranks never mix.
  if (write(replies_, text.data(), text.size()) != ssize_t(text.size())) std::_Exit(1);
}

void Gang::fail(const std::string& why) {
  std::fprintf(stderr, "rank %d: %s\n", rank_, why.c_str());
  std::fflush(stderr);
  reply("error rank " + std::to_string(rank_) + ": " + why.substr(0, 1024));
  std::_Exit(1);
}

void serve(Gang& gang, const std::function<Work(const Command&)>& prepare) {
  gang.barrier();
  if (gang.rank() == 0) gang.reply("ready");
  Command command;
  while (gang.next(&command)) {
    gang.barrier();
    const Work work = prepare(command);
    if (!work.answer.empty()) {
      if (gang.rank() == 0) gang.reply(work.answer);
      continue;
    }
    if (!work.call) gang.fail("does not know how to measure '" + command.kind + "'");
    std::vector<double> us;
    const std::string wrong = measure(gang, work, std::max(1, command.iterations), &us);
    if (!wrong.empty()) gang.fail(command.kind + ": " + wrong);
    if (gang.rank() == 0) gang.reply(format(summarise(us)));
  }
}

}  // namespace rueda::bench
