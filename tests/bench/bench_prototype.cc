// SPDX-License-Identifier: Apache-2.0
// The yardstick: an allreduce of floats in shared memory with nothing around it. No daemon, no
// names, no checks, no failure handling; every rank maps every tensor and sums a fixed share of it
// in place. usage: bench_prototype FOLDER RANK RANKS kinds: slices, inline (up to 4 KiB),
// resnet-sync, resnet-async, resnet-flat
#include <fcntl.h>

#include <cstdlib>

#include "tests/bench/bench_gang.h"
#include "tests/bench/prototype_words.h"
#include "tests/bench/sum_kernel.h"

namespace rueda::bench {
namespace {

constexpr size_t kCapacity = size_t(256) << 20;  // The largest row, and more than ResNet-50 needs.

class Prototype {
 public:
  explicit Prototype(Gang& gang)
      : gang_(gang), rank_(gang.rank()), ranks_(gang.ranks()), policy_(ranks_ > onlineCores()) {
    if (ranks_ > kMaxPrototypeRanks) gang_.fail("too many ranks for the prototype");
    board_ = static_cast<Board*>(map("board", sizeof(Board)));
    for (int r = 0; r < ranks_; ++r) {
      tensors_[r] = static_cast<char*>(map("tensor." + std::to_string(r), kCapacity));
    }
  }

  float* tensor() { return reinterpret_cast<float*>(tensors_[rank_]); }

  // Touches what is new of the first `bytes` of every tensor, so that no call pays page faults.
  bool ensure(size_t bytes) {
    if (bytes > kCapacity) return false;
    for (int r = 0; r < ranks_; ++r) {
      for (size_t at = touched_; at < bytes; at += 4096) {
        // Adds nothing, yet writes; other ranks do the same at the same time.
        __atomic_fetch_add(tensors_[r] + at, 0, __ATOMIC_RELAXED);
      }
    }
    touched_ = std::max(touched_, bytes);
    return true;
  }

  // Shows the slices to the other ranks; finish() sums them.
  void post(const Slice* slices, size_t count) {
    RankWords& mine = board_->ranks[rank_];
    for (size_t i = 0; i < count; ++i) mine.slices[posted_++ % kPostedAtOnce] = slices[i];
    mine.posted.publish(posted_);
  }

  // Sums this rank's share of everything posted and waits for the other shares.
  void finish() {
    for (; summed_ != posted_; ++summed_) {
      for (int r = 0; r < ranks_; ++r) board_->ranks[r].posted.wait(summed_ + 1, policy_);
      sumShare(summed_ % kPostedAtOnce);
    }
    board_->ranks[rank_].finished.publish(summed_);
    for (int r = 0; r < ranks_; ++r) board_->ranks[r].finished.wait(summed_, policy_);
  }

  void sumInline(size_t count) {
    const uint32_t sequence = ++inlined_;
    float* values = tensor();
    InlineLine& mine = board_->ranks[rank_].lines[sequence & 1];
    std::memcpy(mine.payload, values, count * sizeof(float));
    // Pairs with the acquire below: payload before number.
    mine.sequence.store(sequence, std::memory_order_release);
    float total[kInlineBytes / sizeof(float)] = {};
    for (int r = 0; r < ranks_; ++r) {
      InlineLine& line = board_->ranks[r].lines[sequence & 1];
      for (unsigned spin = 0; line.sequence.load(std::memory_order_acquire) != sequence; ++spin) {
        policy_.relax(spin);
      }
      float other[kInlineBytes / sizeof(float)];
      std::memcpy(other, line.payload, count * sizeof(float));
      for (size_t i = 0; i < count; ++i) total[i] += other[i];
    }
    std::memcpy(values, total, count * sizeof(float));
  }

  void sumCopies(size_t count) {
    const uint32_t sequence = ++copied_;
    float* values = tensor();
    std::memcpy(board_->ranks[rank_].copies[sequence & 1], values, count * sizeof(float));
    board_->ranks[rank_].copied.publish(sequence);
    for (int r = 0; r < ranks_; ++r) board_->ranks[r].copied.wait(sequence, policy_);
    for (size_t i = 0; i < count; ++i) values[i] = 0;
    for (int r = 0; r < ranks_; ++r) {
      const float* other = reinterpret_cast<float*>(board_->ranks[r].copies[sequence & 1]);
      for (size_t i = 0; i < count; ++i) values[i] += other[i];
    }
  }

 private:
  void* map(const std::string& name, size_t bytes) {
    const int file =
        open((gang_.folder() + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, off_t(bytes)) != 0) gang_.fail("cannot make " + name);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) gang_.fail("cannot map " + name);
    return memory;
  }

  void sumShare(uint32_t index) {
    const size_t count = board_->ranks[rank_].slices[index].count;
    // Whole cache lines for each rank; the last one takes the rest.
    const size_t share = (count / size_t(ranks_) + 15) & ~size_t(15);
    const size_t begin = std::min(count, share * size_t(rank_));
    const size_t end = rank_ + 1 == ranks_ ? count : std::min(count, begin + share);
    float* arrays[kMaxPrototypeRanks];
    for (int r = 0; r < ranks_; ++r) {
      arrays[r] = reinterpret_cast<float*>(tensors_[r]) + board_->ranks[r].slices[index].offset;
      arrays[r] += begin;
    }
    if (!sumInPlace(ranks_, arrays, end - begin)) gang_.fail("no kernel for so many ranks");
  }

  Gang& gang_;
  const int rank_, ranks_;
  const WaitPolicy policy_;
  Board* board_ = nullptr;
  char* tensors_[kMaxPrototypeRanks] = {};
  size_t touched_ = 0;
  uint32_t posted_ = 0, summed_ = 0, inlined_ = 0, copied_ = 0;
};

Work prepare(const Command& command, Prototype* prototype) {
  Work work;
  const bool set = command.kind.rfind("resnet-", 0) == 0;
  work.slices = set ? resnet50Slices() : std::vector<Slice>{{0, command.bytes / sizeof(float)}};
  if (command.kind == "resnet-flat") work.slices = {{0, totalCount(work.slices)}};
  if (!prototype->ensure(spanOf(work.slices) * sizeof(float))) return work;
  work.tensor = prototype->tensor();
  const std::vector<Slice> slices = work.slices;
  const size_t count = slices[0].count;
  if (command.kind == "inline" && command.bytes <= kInlineBytes) {
    work.call = [=] { prototype->sumInline(count); };
  } else if (command.kind == "inline" && command.bytes <= kCopyBytes) {
    work.call = [=] { prototype->sumCopies(count); };
  } else if (command.kind == "resnet-sync") {
    work.call = [=] {
      for (const Slice& slice : slices) {
        prototype->post(&slice, 1);
        prototype->finish();
      }
    };
  } else if (command.kind == "slices" || command.kind == "resnet-async" ||
             command.kind == "resnet-flat") {
    work.call = [=] {
      prototype->post(slices.data(), slices.size());
      prototype->finish();
    };
  }
  return work;
}

}  // namespace
}  // namespace rueda::bench

int main(int argc, char** argv) {
  if (argc < 4) return 1;
  const int rank = std::atoi(argv[2]);
  rueda::bench::pinToCore(rank);
  rueda::bench::Gang gang(argv[1], rank, std::atoi(argv[3]));
  rueda::bench::Prototype prototype(gang);
  rueda::bench::serve(gang, [&](const rueda::bench::Command& command) {
    return rueda::bench::prepare(command, &prototype);
  });
  return 0;
}
