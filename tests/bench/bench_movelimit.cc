// SPDX-License-Identifier: Apache-2.0
// What the machine allows at best where rows or sums of rows move: as many processes as there are
// ranks, each copying what it gets out of the others' memory into memory of its own, plainly; who
// moves it, how ranks meet and whose memory it is costs nothing but the barrier at the end.
// usage: bench_movelimit FOLDER RANK RANKS
// kinds: {allgather,alltoall,broadcast}[-rep|-nt] by memcpy, by the processor's copy instruction,
// by stores past the cache; reducescatter
#include <fcntl.h>
#include <immintrin.h>

#include <cstdlib>

#include "tests/bench/bench_gang.h"
#include "tests/bench/check_result.h"
#include "tests/bench/sum_kernel.h"

namespace rueda::bench {
namespace {

using Copy = void (*)(float* to, const float* from, size_t count);

void copyByMemcpy(float* to, const float* from, size_t count) {
  std::memcpy(to, from, count * sizeof(float));
}

void copyByRep(float* to, const float* from, size_t count) {
  size_t bytes = count * sizeof(float);
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

// Eight bytes a store: write combining makes whole lines of them.
void copyPastCache(float* to, const float* from, size_t count) {
  auto* const words = reinterpret_cast<long long*>(to);
  for (size_t i = 0; i < count / 2; ++i) {
    long long word = 0;
    std::memcpy(&word, from + 2 * i, sizeof word);
    _mm_stream_si64(words + i, word);
  }
  if (count % 2 != 0) to[count - 1] = from[count - 1];
  _mm_sfence();
}

// What every rank has: a tensor, and room for a result behind it. One file that all map.
class Places {
 public:
  explicit Places(Gang& gang) : gang_(gang) {}
  Places(const Places&) = delete;
  Places& operator=(const Places&) = delete;
  ~Places() { unmap(); }

  // Makes them for tensors of `count` floats and results of `resultCount`. On all ranks at once.
  void make(size_t count, size_t resultCount) {
    unmap();
    resultAt_ = pages(count * sizeof(float));
    stride_ = resultAt_ + pages(resultCount * sizeof(float));
    const std::string path = gang_.folder() + "/tensors";
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    bytes_ = stride_ * size_t(gang_.ranks());
    if (file < 0 || ftruncate(file, off_t(bytes_)) != 0) gang_.fail("no memory for tensors");
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) gang_.fail("no memory for tensors");
    base_ = static_cast<char*>(memory);
    gang_.barrier();
    for (size_t at = 0; at < bytes_; at += kPage) *const_cast<volatile char*>(base_ + at) += 0;
    gang_.barrier();
  }

  float* tensor(int rank) const { return reinterpret_cast<float*>(base_ + stride_ * size_t(rank)); }
  float* result() const {
    return reinterpret_cast<float*>(base_ + stride_ * size_t(gang_.rank()) + resultAt_);
  }

 private:
  static constexpr size_t kPage = 4096;
  // Whole pages and one more, which keeps the cache sets of arrays apart.
  static size_t pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage + kPage; }
  void unmap() {
    if (base_ != nullptr) munmap(base_, bytes_);
    base_ = nullptr;
  }

  Gang& gang_;
  char* base_ = nullptr;
  size_t bytes_ = 0, stride_ = 0, resultAt_ = 0;
};

void sumRows(const Places& places, int ranks, size_t first, size_t count) {
  float* const to = places.result();
  const float* from[Gang::kMaxRanks];
  for (int rank = 0; rank < ranks; ++rank) from[rank] = places.tensor(rank) + first;
  constexpr size_t kWidth = 16;
  size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    Vector sum = *reinterpret_cast<const Vector*>(from[0] + i);
    for (int rank = 1; rank < ranks; ++rank)
      sum += *reinterpret_cast<const Vector*>(from[rank] + i);
    *reinterpret_cast<Vector*>(to + i) = sum;
  }
  for (; i < count; ++i) {
    to[i] = 0;
    for (int rank = 0; rank < ranks; ++rank) to[i] += from[rank][i];
  }
}

Copy copyOf(const std::string& kind) {
  const size_t dash = kind.find('-');
  const std::string way = dash == std::string::npos ? "" : kind.substr(dash + 1);
  return way == "rep" ? copyByRep : way == "nt" ? copyPastCache : copyByMemcpy;
}

Work prepare(Gang& gang, const Command& command, Places* places) {
  const size_t count = command.bytes / sizeof(float);
  const int rank = gang.rank(), ranks = gang.ranks();
  const size_t part = count / size_t(ranks);
  const std::string kind = command.kind.substr(0, command.kind.find('-'));
  const Copy copy = copyOf(command.kind);
  places->make(count, kind == "allgather" ? count * size_t(ranks) : count);
  Work work;
  work.tensor = places->tensor(rank);
  work.slices = {{0, count}};
  float* const result = places->result();
  if (kind == "allgather" || kind == "alltoall") {
    const size_t block = kind == "allgather" ? count : part;
    const size_t first = kind == "allgather" ? 0 : part * size_t(rank);
    work.call = [=, &gang] {
      for (int i = 0; i < ranks; ++i) {
        const int giver = (rank + i) % ranks;
        copy(result + block * size_t(giver), places->tensor(giver) + first, block);
      }
      gang.barrier();
    };
    work.wrong = [=] { return wrongBlocks(result, block, ranks); };
  } else if (kind == "broadcast") {
    float* const tensor = work.tensor;
    work.call = [=, &gang] {
      if (rank != ranks - 1) copy(tensor, places->tensor(ranks - 1), count);
      gang.barrier();
    };
    work.wrong = [=] { return wrongValues(tensor, count, float(ranks)); };
  } else if (kind == "reducescatter") {
    work.call = [=, &gang] {
      sumRows(*places, ranks, part * size_t(rank), part);
      gang.barrier();
    };
    work.wrong = [=] { return wrongValues(result, part, float(ranks * (ranks + 1) / 2)); };
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
  rueda::bench::Places places(gang);
  rueda::bench::serve(gang, [&](const rueda::bench::Command& command) {
    return rueda::bench::prepare(gang, command, &places);
  });
  return 0;
}
