// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loop that combines a fixed number of inputs in registers, in the order of the balanced tree.
// Compiled once per instruction set, see reduce_vector.h.

#include "shm/reduce_combine.h"
#include "shm/reduce_formats.h"
#include "shm/reduce_kernel_set.h"

namespace rueda::shm {
namespace {  // NOLINT(google-build-namespaces): see reduce_vector.h.

// The largest power of two below n: where the tree over n inputs splits.
constexpr int treeSplit(int n) {
  int split = 1;
  while (split * 2 < n) split *= 2;
  return split;
}

// In and Out are formats with the same accumulators. Scales are applied in the accumulator's type.
template <typename In, typename Out, Combine kCombine, int kInputs, bool kPre, bool kPost>
struct Loop {
  using V = typename In::Vector;
  using Scalar = typename In::Scalar;
  static constexpr int kLanes = In::kLanes;
  // Vectors of each stream in one step.
  static constexpr int kUnroll = kUnrolled && kCombine == Combine::kAdd ? Out::kUnroll : 1;
  // What is this far ahead in each stream is fetched, since the processor's own prefetching stops
  // at the end of a page: 10 % faster where data comes from memory, no slower where it is in a
  // cache. Not in short calls, and never past the end: the next bytes may be another core's to
  // write.
  static constexpr size_t kPrefetchBytes = 4096;
  static constexpr size_t kPrefetchFromBytes = 64 << 10;
  // In place, with the number of outputs known too: 10 % faster where data is in a cache.
  static constexpr bool kSquare = kUnroll > 1 && kInputs > 1 && !kPre;

  template <int kFirst, int kCount, typename Load>
  static RUEDA_INLINE V tree(const Load& load, V prescale) {
    if constexpr (kCount == 1) {
      const V vector = In::widen(load(kFirst));
      if constexpr (kPre) return vector * prescale;
      return vector;
    } else {
      constexpr int kLeft = treeSplit(kCount);
      const V left = tree<kFirst, kLeft>(load, prescale);
      const V right = tree<kFirst + kLeft, kCount - kLeft>(load, prescale);
      return combineTwo<kCombine, Scalar>(left, right);
    }
  }

  static RUEDA_INLINE typename Out::Stored finish(V vector, V postscale) {
    if constexpr (kPost) vector = vector * postscale;
    if constexpr (Scalar(0.5) != 0) vector = canonicalNan(vector);
    return Out::narrow(vector);
  }

  // One step of kVectors vectors; the results stay in registers. Reads all inputs before it
  // writes, since outputs may be the inputs.
  template <int kVectors, typename ForEachOutput>
  static RUEDA_INLINE void step(const char* const (&inputs)[kInputs], size_t i, V prescale,
                                V postscale, const ForEachOutput& forEachOutput) {
    typename Out::Stored results[kVectors];
    unroll<kVectors>([&](int u) RUEDA_INLINE_LAMBDA {
      const size_t offset = (i + u * kLanes) * In::kBytes;
      const auto loadInput = [&](int k) RUEDA_INLINE_LAMBDA {
        return load<typename In::Stored>(inputs[k] + offset);
      };
      results[u] = finish(tree<0, kInputs>(loadInput, prescale), postscale);
    });
    forEachOutput([&](char* output) RUEDA_INLINE_LAMBDA {
      unroll<kVectors>([&](int u) RUEDA_INLINE_LAMBDA {
        store(output + (i + u * kLanes) * Out::kBytes, results[u]);
      });
    });
  }

  static void run(const KernelCall& shared) {
    const KernelCall call = shared;  // A copy, since stores could change the shared one.
    const char* inputs[kInputs];
    for (int k = 0; k < kInputs; ++k) inputs[k] = static_cast<const char*>(call.inputs[k]);
    const V prescale = broadcast<V>(static_cast<Scalar>(kPre ? call.prescale : 1.0));
    const V postscale = broadcast<V>(static_cast<Scalar>(kPost ? call.postscale : 1.0));
    size_t i = 0;
    if constexpr (kSquare) {
      if (call.outputCount == kInputs) {
        char* outputs[kInputs];
        for (int k = 0; k < kInputs; ++k) outputs[k] = static_cast<char*>(call.outputs[k]);
        const auto forEachOutput = [&](const auto& write) RUEDA_INLINE_LAMBDA {
          unroll<kInputs>([&](int k) RUEDA_INLINE_LAMBDA { write(outputs[k]); });
        };
        constexpr size_t kStep = kUnroll * kLanes;
        const size_t ahead = kPrefetchBytes / In::kBytes;
        if (call.count * In::kBytes >= kPrefetchFromBytes) {
          for (; i + kStep + ahead <= call.count; i += kStep) {
            unroll<kInputs>([&](int k) RUEDA_INLINE_LAMBDA {
              prefetch<kStep * In::kBytes>(inputs[k] + (i + ahead) * In::kBytes);
            });
            step<kUnroll>(inputs, i, prescale, postscale, forEachOutput);
          }
        }
        for (; i + kStep <= call.count; i += kStep) {
          step<kUnroll>(inputs, i, prescale, postscale, forEachOutput);
        }
      }
    }
    const auto forEachOutput = [&](const auto& write) RUEDA_INLINE_LAMBDA {
      for (int m = 0; m < call.outputCount; ++m) write(static_cast<char*>(call.outputs[m]));
    };
    for (; i + kLanes <= call.count; i += kLanes) {
      step<1>(inputs, i, prescale, postscale, forEachOutput);
    }
    if (i == call.count) return;
    const size_t rest = call.count - i;
    const auto loadInput = [&](int k) RUEDA_INLINE_LAMBDA {
      return loadPartial<typename In::Stored>(inputs[k] + i * In::kBytes, rest * In::kBytes);
    };
    const auto result = finish(tree<0, kInputs>(loadInput, prescale), postscale);
    forEachOutput([&](char* output) RUEDA_INLINE_LAMBDA {
      storePartial(output + i * Out::kBytes, result, rest * Out::kBytes);
    });
  }
};

}  // namespace
}  // namespace rueda::shm
