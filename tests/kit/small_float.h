// SPDX-License-Identifier: Apache-2.0
#pragma once

// 16-bit and 8-bit floats by arithmetic on doubles, to check faster conversions against. For tests;
// any thread.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace rueda::kit {

// A float with these many bits for exponent and mantissa and one for the sign. kInfinite: the
// largest exponent is kept for infinity and NaN. Else only the largest magnitude is NaN.
template <int kExponentBits, int kMantissaBits, bool kInfinite = true>
struct SmallFloat {
  static constexpr int kBits = 1 + kExponentBits + kMantissaBits;
  static_assert(kBits == 8 || kBits == 16);
  using Bits = std::conditional_t<kBits == 8, uint8_t, uint16_t>;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr unsigned kSign = 1u << (kBits - 1);
  static constexpr unsigned kInfinity = ((1u << kExponentBits) - 1) << kMantissaBits;
  // What a NaN is written as: the quiet bit alone, but of 8 bits all, as torch does.
  static constexpr unsigned kNan = kBits == 8 ? kSign - 1 : kInfinity | (1u << (kMantissaBits - 1));
  // What is too large is written as: the largest number if there is no infinity.
  static constexpr unsigned kOverflow = kInfinite ? kInfinity : kNan - 1;

  static float decode(Bits bits) {
    const double sign = bits & kSign ? -1 : 1;
    const unsigned magnitude = bits & (kSign - 1);
    if (kInfinite && magnitude == kInfinity) return static_cast<float>(sign) * INFINITY;
    if (magnitude > kOverflow) return std::nanf("");
    const int exponent = static_cast<int>(magnitude >> kMantissaBits);
    const int mantissa = magnitude & ((1 << kMantissaBits) - 1);
    const int implied = exponent == 0 ? 0 : 1 << kMantissaBits;
    const int power = std::max(exponent, 1) - kBias - kMantissaBits;
    return static_cast<float>(sign * std::ldexp(mantissa + implied, power));
  }

  // Counts in units of the last place; nearbyint rounds to even. A carry into the next power of
  // two adds into the exponent field by itself.
  static Bits encode(float value) {
    if (std::isnan(value)) return kNan;
    const unsigned sign = std::signbit(value) ? kSign : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    unsigned bits = kOverflow;
    if (!std::isinf(value)) {
      const int exponent = std::max(std::ilogb(magnitude) + kBias, 1);
      const double unit = std::ldexp(1.0, exponent - kBias - kMantissaBits);
      const unsigned units = static_cast<unsigned>(std::nearbyint(magnitude / unit));
      bits = std::min((static_cast<unsigned>(exponent - 1) << kMantissaBits) + units, kOverflow);
    }
    return static_cast<Bits>(sign | bits);
  }
};

using Half = SmallFloat<5, 10>;
using Brain = SmallFloat<8, 7>;
using E4m3fn = SmallFloat<4, 3, false>;
using E5m2 = SmallFloat<5, 2>;

}  // namespace rueda::kit
