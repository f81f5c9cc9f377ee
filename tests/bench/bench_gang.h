// SPDX-License-Identifier: Apache-2.0
#pragma once

// A gang is the N rank processes of one contender. They live through the whole run, block in a read
// of their own pipe between commands (no CPU, whatever the library under test does when it waits),
// and measure on command. One thread per rank; not for use inside the product.
//
// Folder of a gang, made by the driver (lib/gang.py):
//   command.R   pipe to rank R: one line "KIND BYTES ITERATIONS" a command; end of file = leave
//   reply       pipe to the driver: "ready", then one line a command
//   lines       4096 bytes of shared memory, one cache line a rank: barrier counter, value, start
//   pid.R       process id of rank R

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/bench_common.h"

namespace rueda::bench {

struct Command {
  std::string kind;
  size_t bytes = 0;
  int iterations = 0;
};

// What one command measures: `call` over `slices` of `tensor`.
struct Work {
  float* tensor = nullptr;
  std::vector<Slice> slices;
  std::function<void()> call;
  // Empty, or what is wrong with a result that is not the sum in place.
  std::function<std::string()> wrong;
  // Rewrite the tensor before each call, start large ones together, check the sums at both ends.
  bool touch = true;
  // When set, answers the command itself with this text, and `call` is not used.
  std::string answer;
};

class Gang {
 public:
  static constexpr int kMaxRanks = 64;  // One cache line each in the 4096-byte file.

  // Opens the folder's pipes and shared memory; ends the process when that fails.
  Gang(const std::string& folder, int rank, int ranks);
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;
  ~Gang();

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  const std::string& folder() const { return folder_; }

  // Returns when all ranks are here. Spins, yielding where ranks outnumber cores; ends the process
  // after a minute.
  void barrier();
  // A barrier that lets all ranks go at one moment of the common clock: without that, whoever
  // passes last finds the others' part done and sees too short a call. Where ranks outnumber cores
  // they cannot start together, and it is the barrier alone.
  void startTogether();
  // Waits for the next command. False at end of file.
  bool next(Command* command);
  // One line to the driver.
  void reply(const std::string& line);
  // Tells the driver why, and ends the process.
  [[noreturn]] void fail(const std::string& why);

 private:
  struct alignas(64) Line {
    std::atomic<uint64_t> arrived;
    double value;                   // Used by the Python ranks alone.
    std::atomic<uint64_t> startNs;  // Rank 0: the moment to start.
  };
  static_assert(sizeof(Line) == 64, "lib/rank_gang.py counts on 64 bytes a rank");

  const std::string folder_;
  const int rank_, ranks_;
  const bool crowded_;
  uint64_t sequence_ = 0;
  uint64_t lastStartNs_ = 0;
  Line* lines_ = nullptr;
  int commands_ = -1, replies_ = -1;
  std::string unread_;
};

// Serves commands until end of file. `prepare` is called once for each command, on every rank.
void serve(Gang& gang, const std::function<Work(const Command&)>& prepare);

}  // namespace rueda::bench
