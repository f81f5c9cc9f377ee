// SPDX-License-Identifier: Apache-2.0
#include "client/cli/format.h"

#include <algorithm>
#include <cstdio>

namespace rueda::cli {
namespace {

bool isContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

// Code points, which is the width of everything but combining and double-width characters.
size_t columnsOf(std::string_view text) {
  return text.size() - std::count_if(text.begin(), text.end(), isContinuation);
}

// Where the code point with this index starts.
size_t offsetOf(std::string_view text, size_t index) {
  size_t offset = 0;
  for (; offset < text.size(); ++offset) {
    if (isContinuation(text[offset])) continue;
    if (index-- == 0) break;
  }
  return offset;
}

std::string twoUnits(uint64_t large, const char* largeUnit, uint64_t small, const char* smallUnit) {
  char text[64];
  std::snprintf(text, sizeof text, "%llu%s %02llu%s", static_cast<unsigned long long>(large),
                largeUnit, static_cast<unsigned long long>(small), smallUnit);
  return text;
}

std::string oneDigit(double value, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f %s", value, unit);
  return text;
}

}  // namespace

std::string formatAge(uint64_t ms) {
  const uint64_t seconds = ms / 1000;
  if (ms < 1000) return std::to_string(ms) + " ms";
  // In whole tenths, so that 59.99 s does not read "60.0 s".
  if (seconds < 60) return oneDigit(static_cast<double>(ms - ms % 100) / 1000, "s");
  if (seconds < 3600) return twoUnits(seconds / 60, "m", seconds % 60, "s");
  if (seconds < 86400) return twoUnits(seconds / 3600, "h", seconds / 60 % 60, "m");
  return twoUnits(seconds / 86400, "d", seconds / 3600 % 24, "h");
}

std::string formatBytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 would be printed as "1024.0".
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return oneDigit(value, kUnits[unit]);
}

std::string formatRanks(std::vector<int> ranks) {
  if (ranks.empty()) return "-";
  std::sort(ranks.begin(), ranks.end());
  std::string text;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] <= ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks[first]);
    if (ranks[last] != ranks[first]) text += '-' + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

std::string printable(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string shown;
  shown.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<uint8_t>(text[i]);
    // C1 controls are U+0080 to U+009F: C2 80 to C2 9F.
    const bool c1 = byte == 0xC2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    if (c1) byte = static_cast<uint8_t>(text[++i]);
    if (c1 || byte < 0x20 || byte == 0x7F) {
      shown += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      shown += static_cast<char>(byte);
    }
  }
  return shown;
}

std::string shortened(std::string_view text, size_t columns) {
  std::string shown = printable(text);
  const size_t width = columnsOf(shown);
  if (width <= columns) return shown;
  const size_t head = (columns - 1) / 2;
  const size_t tail = columns - 1 - head;
  return shown.substr(0, offsetOf(shown, head)) + "…" + shown.substr(offsetOf(shown, width - tail));
}

std::string Table::toString() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columnsOf(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - columnsOf(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

}  // namespace rueda::cli
