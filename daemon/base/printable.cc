// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/printable.h"

namespace rueda::base {

constexpr size_t kMaxPrintable = 200;

std::string printable(const std::string& text) {
  static const char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    if (out.size() >= kMaxPrintable) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      out += c;
    } else {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

}  // namespace rueda::base
