// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/operation.h"

#include <cstring>

#include "shm/rows.h"

namespace rueda::client {
namespace {

// Hashes words by their place. The products do not wait for each other: a chain of them would take
// longer than the rest of a small operation's way to its post.
class WordHash {
 public:
  void add(uint64_t word) {
    const auto product = static_cast<unsigned __int128>(word ^ key_) * 0x9E3779B97F4A7C15ull;
    sum_ += static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    key_ += 0xD1B54A32D192ED03ull;
  }
  // The caller adds the length too.
  void addText(std::string_view text) {
    const char* at = text.data();
    const char* const end = at + text.size();
    if (text.size() < sizeof(uint64_t)) {
      for (; at != end; ++at) add(static_cast<uint8_t>(*at));
      return;
    }
    for (; end - at > 8; at += 8) add(wordAt(at));
    add(wordAt(end - 8));  // May overlap the one before.
  }
  // Mixes every bit of the sum into 32.
  uint32_t finish() const {
    const auto product = static_cast<unsigned __int128>(sum_) * 0x8CB92BA72F3D8DD7ull;
    const uint64_t folded = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    return static_cast<uint32_t>(folded ^ folded >> 32);
  }

 private:
  static uint64_t wordAt(const char* text) {
    uint64_t word = 0;
    std::memcpy(&word, text, sizeof word);
    return word;
  }

  uint64_t key_ = 0x27220A95FE4D5EFBull;
  uint64_t sum_ = 0;
};

uint64_t bitsOf(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

}  // namespace

uint64_t Operation::rowBytes() const {
  uint64_t bytes = shm::dtypeSize(dtype);
  for (uint32_t i = 1; i < ndim; ++i) bytes *= static_cast<uint64_t>(shape[i]);
  return bytes;
}

uint64_t Operation::resultBytes(int rank, int size) const {
  if (kind != shm::OpKind::kReducescatter || lacksRows()) return bytes();
  return shm::scatteredRows(static_cast<uint64_t>(shape[0]), size, rank).count * rowBytes();
}

uint64_t Operation::resultBegin(int rank, int size) const {
  if (kind != shm::OpKind::kReducescatter || lacksRows()) return 0;
  return shm::scatteredRows(static_cast<uint64_t>(shape[0]), size, rank).begin * rowBytes();
}

uint32_t signatureOf(const Operation& op) {
  WordHash hash;
  hash.add(op.name.size() << 32 | op.ndim << 24 | uint32_t(op.kind) << 16 |
           uint32_t(op.dtype) << 8 | uint32_t(op.reduceOp));
  hash.add(static_cast<uint64_t>(op.root));
  hash.addText(op.name);
  for (uint32_t i = shm::gathers(op.kind) ? 1 : 0; i < op.ndim; ++i)
    hash.add(static_cast<uint64_t>(op.shape[i]));
  if (op.prescale != 1.0 || op.postscale != 1.0) {
    hash.add(bitsOf(op.prescale));
    hash.add(bitsOf(op.postscale));
  }
  const uint32_t signature = hash.finish();
  return signature == 0 ? 1 : signature;
}

shm::Status inFlight(shm::OpKind kind, std::string_view name) {
  return {shm::Code::kAlreadyExists, std::string(shm::opKindName(kind)) + " '" + std::string(name) +
                                         "' is still in flight in this process"};
}

shm::Status noRoom(shm::OpKind kind, std::string_view name, uint64_t bytes, uint64_t room) {
  return {shm::Code::kInvalidArgument,
          std::string(shm::opKindName(kind)) + " '" + std::string(name) +
              "': the rows of all ranks are " + std::to_string(bytes) +
              " bytes, the output has room for " + std::to_string(room)};
}

}  // namespace rueda::client
