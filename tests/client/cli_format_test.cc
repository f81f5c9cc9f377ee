// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <limits>

#include "client/cli/format.h"

using namespace rueda::cli;

TEST_CASE("ages read well from milliseconds to days") {
  CHECK(formatAge(0) == "0 ms");
  CHECK(formatAge(999) == "999 ms");
  CHECK(formatAge(1000) == "1.0 s");
  CHECK(formatAge(12'340) == "12.3 s");
  CHECK(formatAge(59'999) == "59.9 s");
  CHECK(formatAge(60'000) == "1m 00s");
  CHECK(formatAge(185'000) == "3m 05s");
  CHECK(formatAge(3'600'000) == "1h 00m");
  CHECK(formatAge(7'380'000) == "2h 03m");
  CHECK(formatAge(86'400'000) == "1d 00h");
  CHECK(formatAge(439'200'000) == "5d 02h");
}

TEST_CASE("sizes read well from bytes to the largest number") {
  CHECK(formatBytes(0) == "0 B");
  CHECK(formatBytes(1023) == "1023 B");
  CHECK(formatBytes(1024) == "1.0 KiB");
  CHECK(formatBytes(1536) == "1.5 KiB");
  CHECK(formatBytes((1 << 20) - 1) == "1.0 MiB");
  CHECK(formatBytes(43 << 20) == "43.0 MiB");
  CHECK(formatBytes(3ull << 30) == "3.0 GiB");
  CHECK(formatBytes(std::numeric_limits<uint64_t>::max()) == "16.0 EiB");
}

TEST_CASE("runs of ranks are joined") {
  CHECK(formatRanks({}) == "-");
  CHECK(formatRanks({3}) == "3");
  CHECK(formatRanks({0, 1, 2}) == "0-2");
  CHECK(formatRanks({0, 1}) == "0-1");
  CHECK(formatRanks({0, 2, 3, 4, 9}) == "0,2-4,9");
  CHECK(formatRanks({9, 3, 4, 2, 0}) == "0,2-4,9");
  CHECK(formatRanks({1, 1, 1}) == "1");
}

TEST_CASE("nothing in a text can steer a terminal") {
  CHECK(printable("layer1.weight") == "layer1.weight");
  CHECK(printable("\x1b[2Jx") == "\\x1b[2Jx");
  CHECK(printable(std::string("a\0b\n\x7f", 5)) == "a\\x00b\\x0a\\x7f");
  CHECK(printable("\xc2\x9b"
                  "31m") == "\\x9b31m");
  CHECK(printable("ñ €") == "ñ €");
  CHECK(printable("\xc2\xa0") == "\xc2\xa0");
}

TEST_CASE("long names keep both ends") {
  CHECK(shortened("short", 5) == "short");
  CHECK(shortened("0123456789", 5) == "01…89");
  CHECK(shortened("0123456789", 6) == "01…789");
  CHECK(shortened("ññññññññññ", 5) == "ññ…ññ");
}

TEST_CASE("a table is as wide as its widest cells, in letters and not bytes") {
  Table table({"A", "LONG", "C"});
  table.add({"ñandú", "1", "x"});
  table.add({"b", "", ""});
  CHECK(table.toString() ==
        "A      LONG  C\n"
        "ñandú  1     x\n"
        "b\n");
}
