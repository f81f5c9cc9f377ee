// SPDX-License-Identifier: Apache-2.0
#include "shm/reduce_kernels.h"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "shm/check.h"
#include "shm/reduce_kernel_set.h"

namespace rueda::shm {
namespace {

// Bytes of accumulators handled at a time where a reduction takes several loops. A few of these
// stay in the first-level cache beside the eight input streams of one loop, and one fits any
// thread's stack at every level of the tree.
constexpr size_t kBlockBytes = 4096;
static_assert(kBlockBytes % 256 == 0, "blocks end with a whole vector, or two or four of them");

// Rounding to nearest, denormals kept, exceptions masked: results must not depend on what the
// calling thread has set (training scripts do set flush-to-zero). Reading costs a few cycles,
// writing happens only if the thread deviates.
class DefaultFloatControl {
 public:
  DefaultFloatControl() : saved_(_mm_getcsr()) {
    if (deviates()) _mm_setcsr(kDefault);
  }
  ~DefaultFloatControl() {
    if (deviates()) _mm_setcsr(saved_);
  }
  DefaultFloatControl(const DefaultFloatControl&) = delete;
  DefaultFloatControl& operator=(const DefaultFloatControl&) = delete;

 private:
  static constexpr unsigned kDefault = 0x1f80;  // The processor's state after reset.
  static constexpr unsigned kFlags = 0x3f;      // Sticky exception flags.
  bool deviates() const { return (saved_ & ~kFlags) != kDefault; }
  const unsigned saved_;
};

enum class Post { kNone, kScale, kDivide };

// A ReduceSpec made concrete for one call.
struct Plan {
  const KernelSet* kernels = nullptr;
  size_t elementBytes = 0;
  bool pre = false;
  Post post = Post::kNone;
  double prescale = 1.0;
  double postscale = 1.0;  // The divisor for Post::kDivide.
};

Combine combineOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAverage:
    case ReduceOp::kSum:
      return Combine::kAdd;
    case ReduceOp::kMin:
      return Combine::kMin;
    case ReduceOp::kMax:
      return Combine::kMax;
    case ReduceOp::kProduct:
      return Combine::kMultiply;
    case ReduceOp::kAdasum:  // Not done here.
      break;
  }
  return Combine::kAdd;
}

const KernelSet& kernelsFor(Isa isa, DType dtype, Combine combine) {
  switch (isa) {
    case Isa::kPlain:
      return plainKernels(dtype, combine);
    case Isa::kAvx2:
      return avx2Kernels(dtype, combine);
    case Isa::kAvx512:
      return avx512Kernels(dtype, combine);
  }
  return plainKernels(dtype, combine);
}

// A float64 f such that trunc(x * f) is x / divisor, truncated, for every integer |x| < 2^32:
// 1/divisor rounded up. A whole quotient is not missed from below, since x * f is no less than it.
// Another one is at least 1/divisor below the next whole number, more than the error of
// x / divisor * 2^-51. (1/divisor rounded to nearest would turn 49 / 49 into 0.)
double divisionFactor(int divisor) {
  return std::nextafter(1.0 / divisor, std::numeric_limits<double>::infinity());
}

Plan makePlan(const ReduceSpec& spec, Isa isa) {
  Plan plan;
  plan.kernels = &kernelsFor(isa, spec.dtype, combineOf(spec.op));
  plan.elementBytes = dtypeSize(spec.dtype);
  if (spec.dtype == DType::kBool) return plan;
  plan.pre = spec.prescale != 1.0;
  plan.prescale = spec.prescale;
  plan.postscale = spec.postscale;
  if (spec.op == ReduceOp::kAverage && spec.ranks != 1) {
    RUEDA_CHECK(spec.ranks >= 1);
    plan.postscale = spec.postscale / spec.ranks;
    if (!isFloating(spec.dtype) && spec.postscale == 1.0) {
      const bool wide = plan.elementBytes == sizeof(int64_t);
      plan.postscale = wide ? spec.ranks : divisionFactor(spec.ranks);
      plan.post = wide ? Post::kDivide : Post::kScale;
      return plan;
    }
  }
  plan.post = plan.postscale != 1.0 ? Post::kScale : Post::kNone;
  return plan;
}

// The one loop that does it all, or nullptr.
Kernel directKernel(const Plan& plan, int inputCount) {
  if (inputCount > kMaxDirectInputs) return nullptr;
  if (plan.pre) return plan.kernels->directPrePost.of[inputCount];
  if (plan.post == Post::kNone) return plan.kernels->direct.of[inputCount];
  return plan.kernels->directPost.of[inputCount];
}

// Works through the inputs block by block, each block as the tree over all inputs.
class BlockReduction {
 public:
  BlockReduction(const Plan& plan, const KernelCall& call, int inputCount)
      : plan_(plan),
        call_(call),
        inputCount_(inputCount),
        leaves_(plan.pre ? plan.kernels->leafPre : plan.kernels->leaf),
        spread_(spreadKernel(plan)) {}

  void run() {
    const size_t elements = kBlockBytes / plan_.kernels->accumulatorBytes;
    for (size_t first = 0; first < call_.count; first += elements) {
      runBlock(first, std::min(elements, call_.count - first));
    }
  }

 private:
  static Kernel spreadKernel(const Plan& plan) {
    switch (plan.post) {
      case Post::kNone:
        return plan.kernels->spread;
      case Post::kScale:
        return plan.kernels->spreadPost;
      case Post::kDivide:
        return plan.kernels->spreadDivide;
    }
    return plan.kernels->spread;
  }

  void runBlock(size_t first, size_t count) {
    alignas(64) char buffer[kBlockBytes];
    const void* block = tree(0, inputCount_, first, count, buffer);
    // One output after the other: sequential writes are twice as fast as 16 streams at once.
    void* result = at(call_.outputs[0], first);
    KernelCall call = blockCall(&block, &result, count);
    call.postscale = call_.postscale;
    spread_(call);
    for (int m = 1; m < call_.outputCount; ++m) {
      std::memcpy(at(call_.outputs[m], first), result, count * plan_.elementBytes);
    }
  }

  // Accumulators of one block over inputs [input, input + n): in `buffer`, or a lone input itself
  // where elements and accumulators are the same.
  const void* tree(int input, int n, size_t first, size_t count, char* buffer) {
    if (n <= kMaxDirectInputs && leaves_.of[n] != nullptr) {
      return leaf(input, n, first, count, buffer);
    }
    int split = 1;
    while (split < n - split) split *= 2;
    alignas(64) char right[kBlockBytes];
    const void* halves[] = {tree(input, split, first, count, buffer),
                            tree(input + split, n - split, first, count, right)};
    void* output = buffer;
    plan_.kernels->combine(blockCall(halves, &output, count));
    return buffer;
  }

  const void* leaf(int input, int n, size_t first, size_t count, char* buffer) {
    const void* inputs[kMaxDirectInputs];
    for (int k = 0; k < n; ++k) {
      inputs[k] = at(call_.inputs[input + k], first);
    }
    const bool same = !plan_.pre && plan_.elementBytes == plan_.kernels->accumulatorBytes;
    if (n == 1 && same) return inputs[0];
    void* output = buffer;
    leaves_.of[n](blockCall(inputs, &output, count));
    return buffer;
  }

  const void* at(const void* array, size_t element) const {
    return static_cast<const char*>(array) + element * plan_.elementBytes;
  }
  void* at(void* array, size_t element) const {
    return static_cast<char*>(array) + element * plan_.elementBytes;
  }

  // Inside the tree only prescale applies.
  KernelCall blockCall(const void* const* inputs, void* const* output, size_t count) const {
    return {inputs, output, 1, count, call_.prescale, 1.0};
  }

  const Plan& plan_;
  const KernelCall& call_;
  const int inputCount_;
  const KernelsByInputs& leaves_;
  const Kernel spread_;
};

bool hasF16c() {  // Not every supported compiler's __builtin_cpu_supports knows it.
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

Isa detectIsa() {
  if (!__builtin_cpu_supports("avx2") || !hasF16c()) return Isa::kPlain;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? Isa::kAvx512 : Isa::kAvx2;
}

}  // namespace

Isa bestIsa() {
  static const Isa isa = detectIsa();
  return isa;
}

const char* isaName(Isa isa) {
  switch (isa) {
    case Isa::kPlain:
      return "plain";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "?";
}

void reduce(const ReduceSpec& spec, const void* const* inputs, int inputCount, void* const* outputs,
            int outputCount, size_t count, Isa isa) {
  RUEDA_CHECK(inputCount >= 1 && spec.op != ReduceOp::kAdasum &&
              canReduce(OpKind::kAllreduce, spec.dtype, spec.op));
  if (count == 0 || outputCount == 0) return;
  if (isComplex(spec.dtype) && combineOf(spec.op) == Combine::kAdd) {
    // A sum of complex numbers is one of their parts.
    ReduceSpec parts = spec;
    parts.dtype = spec.dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
    return reduce(parts, inputs, inputCount, outputs, outputCount, 2 * count, isa);
  }
  const Plan plan = makePlan(spec, isa);
  const bool scaled = plan.pre || plan.post != Post::kNone;
  if (inputCount == 1 && !scaled && spec.dtype != DType::kBool) {
    for (int m = 0; m < outputCount; ++m) {
      if (outputs[m] != inputs[0]) std::memcpy(outputs[m], inputs[0], count * plan.elementBytes);
    }
    return;
  }
  const DefaultFloatControl control;
  const KernelCall call{inputs, outputs, outputCount, count, plan.prescale, plan.postscale};
  if (const Kernel kernel = directKernel(plan, inputCount)) {
    kernel(call);
  } else {
    BlockReduction(plan, call, inputCount).run();
  }
}

}  // namespace rueda::shm
