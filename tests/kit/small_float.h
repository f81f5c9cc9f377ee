// SPDX-License-Identifier: Apache-2.0
#pragma once

// 16-bit floats by arithmetic on doubles, to check faster conversions against. For tests; any
// thread.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace rueda::kit {

// A 16-bit float with these many bits for exponent and mantissa.
template <int kExponentBits, int kMantissaBits>
struct SmallFloat {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr unsigned kInfinity = ((1u << kExponentBits) - 1) << kMantissaBits;

  static float decode(uint16_t bits) {
    const double sign = bits & 0x8000 ? -1 : 1;
    const int exponent = (bits >> kMantissaBits) & ((1 << kExponentBits) - 1);
    const int mantissa = bits & ((1 << kMantissaBits) - 1);
    if (exponent == (1 << kExponentBits) - 1) {
      return mantissa != 0 ? std::nanf("") : static_cast<float>(sign) * INFINITY;
    }
    const int implied = exponent == 0 ? 0 : 1 << kMantissaBits;
    const int power = std::max(exponent, 1) - kBias - kMantissaBits;
    return static_cast<float>(sign * std::ldexp(mantissa + implied, power));
  }

  // Counts in units of the last place; nearbyint rounds to even. A carry into the next power of
  // two adds into the exponent field by itself.
  static uint16_t encode(float value) {
    if (std::isnan(value)) return kInfinity | (1u << (kMantissaBits - 1));
    const unsigned sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isinf(value)) return sign | kInfinity;
    const double magnitude = std::fabs(static_cast<double>(value));
    const int exponent = std::max(std::ilogb(magnitude) + kBias, 1);
    const double unit = std::ldexp(1.0, exponent - kBias - kMantissaBits);
    const unsigned units = static_cast<unsigned>(std::nearbyint(magnitude / unit));
    return sign |
           std::min((static_cast<unsigned>(exponent - 1) << kMantissaBits) + units, kInfinity);
  }
};

using Half = SmallFloat<5, 10>;
using Brain = SmallFloat<8, 7>;

}  // namespace rueda::kit
