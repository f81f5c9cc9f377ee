// SPDX-License-Identifier: Apache-2.0
#pragma once

// The small parts of ruedactl's output: aligned tables, ages, sizes, lists of ranks. Pure; any
// thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rueda::cli {

// "350 ms", "12.3 s", "3m 05s", "2h 03m", "5d 02h".
std::string formatAge(uint64_t ms);
// "512 B", "1.5 KiB", "41.2 MiB", …
std::string formatBytes(uint64_t bytes);
// "0-2,5": sorted ranks with runs joined; "-" for none.
std::string formatRanks(std::vector<int> ranks);

// The text without control characters (ASCII and C1), which appear as \xNN. REQUIRES: valid UTF-8.
std::string printable(std::string_view text);
// printable(), at most `columns` wide, the middle replaced by "…": names of tensors differ at both
// ends.
std::string shortened(std::string_view text, size_t columns);

class Table {
 public:
  explicit Table(std::vector<std::string> header) : rows_{std::move(header)} {}
  // REQUIRES: as many cells as the header has.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Columns two spaces apart, as wide as their widest cell; no blanks at the end of lines.
  std::string toString() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace rueda::cli
