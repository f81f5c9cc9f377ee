// SPDX-License-Identifier: Apache-2.0
#pragma once

// From what is known of an operation to the events of a Chrome trace: each name is a "process"
// there, whose events never go back in time. One thread.

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "shm/dtype.h"
#include "shm/op_times.h"

namespace rueda::client {

// One operation as this rank has seen it to its end. Times in ns of CLOCK_MONOTONIC.
struct TimedOperation {
  std::string name;
  uint32_t processSet = 0;
  shm::OpKind kind = shm::OpKind::kAllreduce;
  bool isAdasum = false;
  bool isBlocking = false;
  shm::DType dtype = shm::DType::kFloat32;
  std::vector<int64_t> shape;
  int rank = 0;                         // This one,
  int64_t submitted = 0;                // and when it came.
  std::vector<shm::RankTime> arrivals;  // From the daemon; none: it never was decided.
  shm::OpTimes times{};                 // If there are arrivals.
  // Rows of a gather to the result, or a result to memory of the caller; 0: not done.
  int64_t copyBegin = 0;
  int64_t copyEnd = 0;
  int64_t ended = 0;  // This rank knew the outcome.
  std::string error;  // "": it succeeded.
};

class TraceEvents {
 public:
  // `beganAt`: the moment that is 0 in the trace; `epochMicros`: the same since 1970.
  TraceEvents(int64_t beganAt, int64_t epochMicros, bool marksCycles);

  // JSON objects, one for each event; none is longer than TraceFile takes.
  std::vector<std::string> begin() const;
  std::vector<std::string> of(const TimedOperation& op);

  // JSON string with its quotes, of at most `maxBytes` and a few more: valid UTF-8 whatever `text`
  // is.
  static std::string quoted(const std::string& text, size_t maxBytes);

  static constexpr size_t kMaxNames = 1 << 18;  // The rest share one process: names may be endless.

 private:
  struct Process {
    int pid = 0;
    int64_t last = 0;  // us
  };
  // Where the events of one operation go.
  struct Scribe {
    const int64_t beganAt;
    Process& process;
    std::vector<std::string>& events;

    void add(const char* phase, const std::string& name, int64_t at, const std::string& more = "");
    void span(const char* name, int64_t from, int64_t to);
  };

  Process& processOf(const TimedOperation& op, std::vector<std::string>* events);
  void markCycle(int64_t at, std::vector<std::string>* events);

  const int64_t beganAt_;
  const int64_t epochMicros_;
  const bool marksCycles_;
  std::unordered_map<std::string, Process> processes_;
  std::set<int64_t> cycles_;  // The last ones that are marked.
};

}  // namespace rueda::client
