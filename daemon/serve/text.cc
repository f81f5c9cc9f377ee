// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/text.h"

#include <cstddef>
#include <cstdint>

namespace rueda::serve {
namespace {

// Bytes of the well-formed sequence at the start of the text (not empty); 0 if there is none.
// Overlong forms, surrogates and values above U+10FFFF are malformed.
size_t sequenceBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second > 0x9F;
  const bool tooHigh = first == 0xF4 && second > 0x8F;
  return overlong || surrogate || tooHigh ? 0 : bytes;
}

}  // namespace

std::string validUtf8(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string valid;
  valid.reserve(text.size());
  while (!text.empty()) {
    size_t bytes = sequenceBytes(text);
    if (bytes == 0) {
      const auto bad = static_cast<uint8_t>(text[0]);
      valid += {'\\', 'x', kDigits[bad >> 4], kDigits[bad & 15]};
      bytes = 1;
    } else {
      valid.append(text.substr(0, bytes));
    }
    text.remove_prefix(bytes);
  }
  return valid;
}

}  // namespace rueda::serve
