// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/operation.h"

#include <cstring>

namespace rueda::client {
namespace {

// One multiply and fold for 8 bytes: enough mixing for a signature, a few nanoseconds a name.
uint64_t mix(uint64_t hash, uint64_t word) {
  const auto product = static_cast<unsigned __int128>(hash ^ word) * 0x9E3779B97F4A7C15ull;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^ (word << 1);
}

uint64_t bitsOf(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

uint32_t signatureOf(const Operation& op) {
  uint64_t hash =
      mix(0x27220A95FE4D5EFBull, op.name.size() << 32 | op.ndim << 24 | uint32_t(op.kind) << 16 |
                                     uint32_t(op.dtype) << 8 | uint32_t(op.reduceOp));
  const char* text = op.name.data();
  size_t left = op.name.size();
  for (; left >= 8; left -= 8, text += 8) {
    uint64_t word = 0;
    std::memcpy(&word, text, 8);
    hash = mix(hash, word);
  }
  uint64_t rest = 0;
  if (left > 0) std::memcpy(&rest, text, left);
  hash = mix(hash, rest);
  for (uint32_t i = 0; i < op.ndim; ++i) hash = mix(hash, static_cast<uint64_t>(op.shape[i]));
  if (op.prescale != 1.0 || op.postscale != 1.0)
    hash = mix(mix(hash, bitsOf(op.prescale)), bitsOf(op.postscale));
  hash = mix(hash, static_cast<uint64_t>(op.root));
  const auto signature = static_cast<uint32_t>(hash ^ hash >> 32);
  return signature == 0 ? 1 : signature;
}

}  // namespace rueda::client
