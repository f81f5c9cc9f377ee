// SPDX-License-Identifier: Apache-2.0
// How fast reduce() is on one thread, in place: GB/s of memory traffic (each array read once and
// written once) by type, operation, number of arrays and bytes per array, with memcpy beside it,
// and the ratio to a bare loop that knows its problem when compiled.
//
//   reduce_bench            the common cases on the best instruction set
//   reduce_bench all        every type and operation
//   reduce_bench bare       float32 sums against the bare loop, 32 KiB to 16 MiB
//   reduce_bench small      nanoseconds of one call on a few elements
// A second argument "plain", "avx2" or "avx512" chooses the instruction set.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "shm/reduce_kernels.h"

namespace rueda::shm {
namespace {

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;
constexpr int kRounds = 25;

using Clock = std::chrono::steady_clock;

double secondsOf(const std::function<void()>& body, int repeats) {
  const auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) body();
  return std::chrono::duration<double>(Clock::now() - start).count() / repeats;
}

// Seconds of one call of each body: the best of rounds that take turns, so that a disturbance or
// a change of clock speed meets all of them.
std::vector<double> bestSeconds(const std::vector<std::function<void()>>& bodies) {
  std::vector<double> best(bodies.size(), 1e9);
  for (const auto& body : bodies) body();
  const int repeats = std::max(1, static_cast<int>(2e-3 / secondsOf(bodies[0], 3)));
  for (int round = 0; round < kRounds; ++round) {
    for (size_t i = 0; i < bodies.size(); ++i) {
      best[i] = std::min(best[i], secondsOf(bodies[i], repeats));
    }
  }
  return best;
}

// Page-aligned arrays, each page written.
class Arrays {
 public:
  Arrays(int number, size_t bytes) {
    for (int i = 0; i < number; ++i) {
      addresses_.push_back(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
      std::memset(addresses_.back(), 0, bytes);
    }
  }
  ~Arrays() {
    for (void* address : addresses_) std::free(address);
  }
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;
  void* const* data() const { return addresses_.data(); }

 private:
  std::vector<void*> addresses_;
};

// What one would write for one type, one number of arrays and one CPU: no scale, no NaN rule, no
// other tail than whole steps. Written out, since not every compiler unrolls such loops at -O2.
template <int kArrays>
__attribute__((target("avx512f"))) void bareSum(void* const* arrays, size_t count) {
  static_assert(kArrays == 2 || kArrays == 4);
  float* a[kArrays];
  for (int k = 0; k < kArrays; ++k) a[k] = static_cast<float*>(arrays[k]);
  for (size_t i = 0; i + 64 <= count; i += 64) {
    __m512 s0 = _mm512_add_ps(_mm512_loadu_ps(a[0] + i), _mm512_loadu_ps(a[1] + i));
    __m512 s1 = _mm512_add_ps(_mm512_loadu_ps(a[0] + i + 16), _mm512_loadu_ps(a[1] + i + 16));
    __m512 s2 = _mm512_add_ps(_mm512_loadu_ps(a[0] + i + 32), _mm512_loadu_ps(a[1] + i + 32));
    __m512 s3 = _mm512_add_ps(_mm512_loadu_ps(a[0] + i + 48), _mm512_loadu_ps(a[1] + i + 48));
    if constexpr (kArrays == 4) {
      s0 = _mm512_add_ps(s0, _mm512_loadu_ps(a[2] + i));
      s1 = _mm512_add_ps(s1, _mm512_loadu_ps(a[2] + i + 16));
      s2 = _mm512_add_ps(s2, _mm512_loadu_ps(a[2] + i + 32));
      s3 = _mm512_add_ps(s3, _mm512_loadu_ps(a[2] + i + 48));
      s0 = _mm512_add_ps(s0, _mm512_loadu_ps(a[3] + i));
      s1 = _mm512_add_ps(s1, _mm512_loadu_ps(a[3] + i + 16));
      s2 = _mm512_add_ps(s2, _mm512_loadu_ps(a[3] + i + 32));
      s3 = _mm512_add_ps(s3, _mm512_loadu_ps(a[3] + i + 48));
    }
    _mm512_storeu_ps(a[0] + i, s0);
    _mm512_storeu_ps(a[0] + i + 16, s1);
    _mm512_storeu_ps(a[0] + i + 32, s2);
    _mm512_storeu_ps(a[0] + i + 48, s3);
    _mm512_storeu_ps(a[1] + i, s0);
    _mm512_storeu_ps(a[1] + i + 16, s1);
    _mm512_storeu_ps(a[1] + i + 32, s2);
    _mm512_storeu_ps(a[1] + i + 48, s3);
    if constexpr (kArrays == 4) {
      _mm512_storeu_ps(a[2] + i, s0);
      _mm512_storeu_ps(a[2] + i + 16, s1);
      _mm512_storeu_ps(a[2] + i + 32, s2);
      _mm512_storeu_ps(a[2] + i + 48, s3);
      _mm512_storeu_ps(a[3] + i, s0);
      _mm512_storeu_ps(a[3] + i + 16, s1);
      _mm512_storeu_ps(a[3] + i + 32, s2);
      _mm512_storeu_ps(a[3] + i + 48, s3);
    }
  }
}

void printRow(const ReduceSpec& base, int k, Isa isa) {
  ReduceSpec spec = base;
  spec.ranks = k;
  std::printf("%-13s %-8s %2d", dtypeName(spec.dtype), reduceOpName(spec.op), k);
  for (const size_t bytes : {64 * kKiB, kMiB, 16 * kMiB}) {
    const Arrays arrays(k, bytes);
    const size_t count = bytes / dtypeSize(spec.dtype);
    const double seconds =
        bestSeconds({[&] { reduce(spec, arrays.data(), k, arrays.data(), k, count, isa); }})[0];
    std::printf(" %8.1f", 2e-9 * k * bytes / seconds);
  }
  std::printf("\n");
}

void printMemcpy() {
  std::printf("%-25s", "memcpy (read + write)");
  for (const size_t bytes : {64 * kKiB, kMiB, 16 * kMiB}) {
    const Arrays arrays(2, bytes);
    const double seconds =
        bestSeconds({[&] { std::memcpy(arrays.data()[0], arrays.data()[1], bytes); }})[0];
    std::printf(" %8.1f", 2e-9 * bytes / seconds);
  }
  std::printf("\n");
}

void printTable(bool all, Isa isa) {
  std::printf("isa %s; GB/s, in place, bytes per array:\n", isaName(isa));
  std::printf("%-25s %8s %8s %8s\n", "dtype         op        k", "64 KiB", "1 MiB", "16 MiB");
  printMemcpy();
  const std::vector<DType> common = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                     DType::kBfloat16, DType::kInt32,   DType::kInt64};
  std::vector<ReduceOp> ops = {ReduceOp::kSum, ReduceOp::kAverage};
  if (all) ops.insert(ops.end(), {ReduceOp::kMin, ReduceOp::kProduct});
  for (int wire = 0; wire < kDTypeCount; ++wire) {
    const DType dtype = static_cast<DType>(wire);
    if (!all && std::find(common.begin(), common.end(), dtype) == common.end()) continue;
    for (const ReduceOp op : ops) {
      if (op == ReduceOp::kAdasum || !canReduce(OpKind::kAllreduce, dtype, op)) continue;
      for (const int k : {2, 3, 4, 5, 8, 16}) printRow({dtype, op}, k, isa);
    }
  }
}

template <int kArrays>
void printBare(Isa isa) {
  ReduceSpec spec;
  for (size_t bytes = 32 * kKiB; bytes <= 16 * kMiB; bytes *= 2) {
    const Arrays arrays(kArrays, bytes);
    const size_t count = bytes / sizeof(float);
    const std::vector<double> seconds = bestSeconds(
        {[&] { reduce(spec, arrays.data(), kArrays, arrays.data(), kArrays, count, isa); },
         [&] { bareSum<kArrays>(arrays.data(), count); }});
    std::printf("%2d x %6zu KiB: reduce %6.1f GB/s, bare %6.1f GB/s, ratio %.3f\n", kArrays,
                bytes / kKiB, 2e-9 * kArrays * bytes / seconds[0],
                2e-9 * kArrays * bytes / seconds[1], seconds[1] / seconds[0]);
  }
}

void printSmall(Isa isa) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt64}) {
    for (const int k : {2, 4, 8, 16}) {
      std::printf("%-9s sum %2d:", dtypeName(dtype), k);
      for (const size_t count : {1, 2, 7, 14, 16, 64, 100, 1000}) {
        const Arrays arrays(k, 8 * count);
        ReduceSpec spec;
        spec.dtype = dtype;
        const double seconds =
            bestSeconds({[&] { reduce(spec, arrays.data(), k, arrays.data(), k, count, isa); }})[0];
        std::printf("  %zu: %.1f ns", count, seconds * 1e9);
      }
      std::printf("\n");
    }
  }
}

int runBench(const std::string& what, const std::string& isaWanted) {
  Isa isa = bestIsa();
  for (const Isa candidate : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
    if (isaWanted == isaName(candidate)) isa = candidate;
  }
  if (isa > bestIsa()) {
    std::fprintf(stderr, "this CPU has no %s\n", isaName(isa));
    return 1;
  }
  if (what == "bare" && bestIsa() != Isa::kAvx512) {
    std::fprintf(stderr, "the bare loop needs AVX-512\n");
    return 1;
  }
  if (what == "bare") {
    printBare<2>(isa);
    printBare<4>(isa);
  } else if (what == "small") {
    printSmall(isa);
  } else {
    printTable(what == "all", isa);
  }
  return 0;
}

}  // namespace
}  // namespace rueda::shm

int main(int argc, char** argv) {
  return rueda::shm::runBench(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "");
}
