// SPDX-License-Identifier: Apache-2.0

// Every file of the corpus, and seeded mutations of them, through both border functions: what
// tests/fuzz/run does for longer, in every run of the tests.

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "tests/fuzz/borders.h"

namespace {

using Bytes = std::vector<uint8_t>;
using Check = std::string (*)(const uint8_t*, size_t, int*);
using Random = std::mt19937_64;

constexpr int kMutations = 20000;  // Of each function; together a third of a second.

struct Seed {
  std::string file;
  Bytes bytes;
};

// Sorted by name, so that a seed means the same on every machine.
std::vector<Seed> readCorpus(const std::string& border) {
  std::vector<Seed> seeds;
  for (const auto& entry : std::filesystem::directory_iterator("tests/fuzz/corpus/" + border)) {
    std::ifstream in(entry.path(), std::ios::binary);
    Bytes bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    seeds.push_back({entry.path().filename().string(), std::move(bytes)});
  }
  std::sort(seeds.begin(), seeds.end(),
            [](const Seed& a, const Seed& b) { return a.file < b.file; });
  return seeds;
}

size_t below(Random& random, size_t limit) { return limit == 0 ? 0 : random() % limit; }

// A field of 1 to 8 bytes becomes a number near a border of its type, or noise.
void overwrite(Random& random, Bytes* bytes) {
  constexpr uint64_t kBorders[] = {
      0,          1,          2,          7,          8,          63,         64,   65,   127,
      128,        255,        1024,       1025,       2047,       2048,       4095, 4096, 4097,
      0x7fffffff, 0x80000000, 0xffffffff, 1ull << 47, 1ull << 48, 1ull << 63, ~0ull};
  const uint64_t value =
      below(random, 4) == 0 ? random() : kBorders[below(random, std::size(kBorders))];
  const size_t width = size_t{1} << below(random, 4);
  if (bytes->size() < width) return;
  std::memcpy(bytes->data() + below(random, bytes->size() - width + 1), &value, width);
}

Bytes mutate(Random& random, const std::vector<Seed>& seeds) {
  Bytes bytes = seeds[below(random, seeds.size())].bytes;
  for (size_t step = 0; step <= below(random, 6); ++step) {
    const size_t at = below(random, bytes.size());
    const Bytes& other = seeds[below(random, seeds.size())].bytes;
    switch (below(random, 6)) {
      case 0:
        if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1u << below(random, 8));
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:  // The rest of another input; whole, if that comes to lie on a slot.
        bytes.insert(bytes.end(),
                     other.begin() + static_cast<ptrdiff_t>(std::min(other.size(), size_t{8})),
                     other.end());
        break;
      default:
        overwrite(random, &bytes);
        break;
    }
  }
  return bytes;
}

struct Tally {
  int accepted = 0;
  std::string wrong;
};

Tally runMutations(Check check, const std::vector<Seed>& seeds) {
  Random random(Catch::rngSeed());
  Tally tally;
  for (int i = 0; i < kMutations && tally.wrong.empty(); ++i) {
    const Bytes bytes = mutate(random, seeds);
    int accepted = 0;
    tally.wrong = check(bytes.data(), bytes.size(), &accepted);
    tally.accepted += accepted > 0 ? 1 : 0;
    if (!tally.wrong.empty()) tally.wrong += ", mutation " + std::to_string(i);
  }
  return tally;
}

struct Border {
  std::string name;
  Check check;
};
const Border kBorderFunctions[] = {{"intake", rueda::fuzz::checkIntake},
                                   {"greeting", rueda::fuzz::checkGreeting}};

bool startsWith(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

}  // namespace

TEST_CASE("border functions accept the valid files of the corpus and refuse the wrong ones") {
  for (const Border& border : kBorderFunctions) {
    const std::vector<Seed> seeds = readCorpus(border.name);
    REQUIRE(seeds.size() >= 10);
    for (const Seed& seed : seeds) {
      INFO(border.name << "/" << seed.file);
      int accepted = 0;
      CHECK(border.check(seed.bytes.data(), seed.bytes.size(), &accepted) == "");
      const bool isValid = startsWith(seed.file, "valid-");
      CHECK(isValid != startsWith(seed.file, "wrong-"));
      CHECK((accepted > 0) == isValid);
    }
  }
}

TEST_CASE("no mutation of the corpus gets past a border function unchecked") {
  INFO("seed " << Catch::rngSeed() << " (--rng-seed)");
  for (const Border& border : kBorderFunctions) {
    const Tally tally = runMutations(border.check, readCorpus(border.name));
    INFO(border.name);
    CHECK(tally.wrong == "");
    // Far from none and from all: mutations reach both sides of the border.
    CHECK(tally.accepted > kMutations / 50);
    CHECK(tally.accepted < kMutations);
  }
}
