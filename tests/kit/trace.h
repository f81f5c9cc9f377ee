// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads the trace of a timeline for tests.

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace rueda::kit {

inline std::string textOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Discarded (is_discarded()) if the file is no JSON.
inline nlohmann::json traceOf(const std::string& path) {
  return nlohmann::json::parse(textOf(path), nullptr, false);
}

// The events of each name as words: "B NEGOTIATE_ALLREDUCE", "X 0", "E", …
inline std::map<std::string, std::vector<std::string>> wordsByName(const nlohmann::json& trace) {
  std::map<int, std::string> names;
  std::map<std::string, std::vector<std::string>> words;
  for (const auto& event : trace) {
    const bool isName = event.value("name", "") == "process_name" && event["pid"] != 0;
    if (isName) names[event["pid"]] = event["args"]["name"];
    if (event["ph"] == "M" || !event.contains("pid")) continue;
    const std::string name = event.value("name", "");
    words[names.at(event["pid"])].push_back(std::string(event["ph"]) +
                                            (name.empty() ? "" : " " + name));
  }
  return words;
}

// "" if it is a trace, and in each process no time goes back and all that begins ends, inside what
// began before.
inline std::string nestingProblem(const nlohmann::json& trace) {
  if (!trace.is_array()) return "no JSON array";
  std::map<int, int> depth;
  std::map<int, int64_t> last;
  for (const auto& event : trace) {
    if (event["ph"] == "M" || !event.contains("pid")) continue;
    const int pid = event["pid"];
    const int64_t ts = event["ts"];
    if (ts < last[pid]) return "time goes back: " + event.dump();
    last[pid] = ts;
    if (event["ph"] == "B") ++depth[pid];
    if (event["ph"] == "E" && --depth[pid] < 0) return "ends too often: " + event.dump();
  }
  for (const auto& [pid, open] : depth)
    if (open != 0) return "process " + std::to_string(pid) + " has an event without end";
  return "";
}

}  // namespace rueda::kit
