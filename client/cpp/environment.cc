// SPDX-License-Identifier: Apache-2.0
// The only file of the client that reads the environment.
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <vector>

#include "client/cpp/options.h"

namespace rueda::client {

using shm::Code;
using shm::Result;
using shm::Status;

namespace {

struct Variable {
  std::string name;  // The one that was found.
  const char* value = nullptr;
};

// RUEDA_<suffix>, else HOROVOD_<suffix>.
Variable find(const std::string& suffix) {
  for (const char* prefix : {"RUEDA_", "HOROVOD_"}) {
    const std::string name = prefix + suffix;
    if (const char* value = std::getenv(name.c_str())) return {name, value};
  }
  return {"RUEDA_" + suffix, nullptr};
}

Status notInRange(const Variable& variable, int64_t low, int64_t high, bool isAbove) {
  const std::string range = high == INT_MAX && !isAbove
                                ? "of at least " + std::to_string(low)
                                : "from " + std::to_string(low) + " to " + std::to_string(high);
  return {Code::kInvalidArgument,
          variable.name + "='" + variable.value + "' is not a number " + range};
}

Status readInt(const std::string& suffix, int low, int high, int* value) {
  const Variable variable = find(suffix);
  if (variable.value == nullptr) return Status::ok();
  char* end = nullptr;
  const long parsed = std::strtol(variable.value, &end, 10);
  if (*variable.value == '\0' || *end != '\0' || parsed < low || parsed > high)
    return notInRange(variable, low, high, *end == '\0' && parsed > high);
  *value = static_cast<int>(parsed);
  return Status::ok();
}

Status readInt(const std::string& suffix, int low, int* value) {
  return readInt(suffix, low, INT_MAX, value);
}

// A knob from 0 to `most` / `scale`, of which *value gets `scale` times as much; 0 is off.
Status readKnob(const std::string& suffix, int64_t scale, int64_t most, int64_t* value) {
  const Variable variable = find(suffix);
  if (variable.value == nullptr) return Status::ok();
  char* end = nullptr;
  const double parsed = std::strtod(variable.value, &end);
  const double scaled = parsed * static_cast<double>(scale);
  if (*variable.value == '\0' || *end != '\0' || !(parsed >= 0) ||
      scaled > static_cast<double>(most))
    return notInRange(variable, 0, most / scale, true);
  *value = parsed == 0 ? -1 : std::max<int64_t>(1, static_cast<int64_t>(scaled));
  return Status::ok();
}

Status readKnobs(shm::Knobs* knobs) {
  constexpr int64_t kMillisecond = 1000;  // In microseconds.
  constexpr int64_t kSecond = 1000;       // In milliseconds.
  int noChecks = 0;
  int groupsApart = 0;
  int lookBack = 0;
  RUEDA_RETURN_IF_ERROR(readKnob("FUSION_THRESHOLD", 1, shm::kMaxFusionBytes, &knobs->fusionBytes));
  RUEDA_RETURN_IF_ERROR(
      readKnob("CYCLE_TIME", kMillisecond, shm::kMaxCycleMicros, &knobs->cycleMicros));
  RUEDA_RETURN_IF_ERROR(
      readKnob("STALL_CHECK_TIME_SECONDS", kSecond, shm::kMaxStallMs, &knobs->stallWarnMs));
  RUEDA_RETURN_IF_ERROR(
      readKnob("STALL_SHUTDOWN_TIME_SECONDS", kSecond, shm::kMaxStallMs, &knobs->stallShutdownMs));
  RUEDA_RETURN_IF_ERROR(readInt("STALL_CHECK_DISABLE", 0, &noChecks));
  RUEDA_RETURN_IF_ERROR(readInt("DISABLE_GROUP_FUSION", 0, &groupsApart));
  RUEDA_RETURN_IF_ERROR(readInt("FUSION_LOOK_BACK", 0, shm::kMaxLookBack, &lookBack));
  if (noChecks > 0) knobs->stallWarnMs = knobs->stallShutdownMs = -1;
  // 0 is off where it is said.
  if (find("DISABLE_GROUP_FUSION").value != nullptr) knobs->groupsApart = groupsApart > 0 ? 1 : -1;
  if (find("FUSION_LOOK_BACK").value != nullptr)
    knobs->fusionLookBack = lookBack > 0 ? lookBack : -1;
  return Status::ok();
}

// A launcher sets rank and size together; one alone means that the environment got lost on the way.
Status checkComplete(const std::string& first, const std::string& second) {
  const Variable a = find(first);
  const Variable b = find(second);
  if ((a.value == nullptr) == (b.value == nullptr)) return Status::ok();
  const Variable& missing = a.value == nullptr ? a : b;
  const Variable& given = a.value == nullptr ? b : a;
  return {Code::kInvalidArgument,
          missing.name + " is missing, while " + given.name + "='" + given.value + "'"};
}

std::string hostName() {
  char name[HOST_NAME_MAX + 1] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

}  // namespace

Result<Options> optionsFromEnvironment() {
  Options options;
  RUEDA_RETURN_IF_ERROR(checkComplete("RANK", "SIZE"));
  RUEDA_RETURN_IF_ERROR(checkComplete("LOCAL_RANK", "LOCAL_SIZE"));
  RUEDA_RETURN_IF_ERROR(readInt("RANK", 0, &options.rank));
  RUEDA_RETURN_IF_ERROR(readInt("SIZE", 1, &options.size));
  options.localRank = options.rank;
  options.localSize = options.size;
  RUEDA_RETURN_IF_ERROR(readInt("LOCAL_RANK", 0, &options.localRank));
  RUEDA_RETURN_IF_ERROR(readInt("LOCAL_SIZE", 1, &options.localSize));
  RUEDA_RETURN_IF_ERROR(readInt("CROSS_RANK", 0, &options.crossRank));
  RUEDA_RETURN_IF_ERROR(readInt("CROSS_SIZE", 1, &options.crossSize));
  int seconds = 30;
  int isolated = 0;
  RUEDA_RETURN_IF_ERROR(readInt("START_TIMEOUT", 1, shm::kMaxStartTimeoutMs / 1000, &seconds));
  RUEDA_RETURN_IF_ERROR(readInt("ISOLATED", 0, &isolated));
  if (options.rank >= options.size)
    return Status(Code::kInvalidArgument, "rank " + std::to_string(options.rank) + " of a job of " +
                                              std::to_string(options.size));
  if (options.crossRank >= options.crossSize)
    return Status(Code::kInvalidArgument, find("CROSS_RANK").name + ": host " +
                                              std::to_string(options.crossRank) + " of " +
                                              std::to_string(options.crossSize));
  options.startTimeoutMs = static_cast<uint32_t>(seconds) * 1000;
  options.isolated = isolated != 0;
  int marksCycles = 0;
  RUEDA_RETURN_IF_ERROR(readInt("TIMELINE_MARK_CYCLES", 0, &marksCycles));
  options.marksCycles = marksCycles != 0;
  if (const Variable v = find("TIMELINE"); v.value != nullptr) options.timeline = v.value;
  RUEDA_RETURN_IF_ERROR(readKnobs(&options.knobs));
  options.hostname = hostName();
  if (const Variable v = find("HOSTNAME"); v.value != nullptr) options.hostname = v.value;
  if (const char* socket = std::getenv("RUEDA_SOCKET")) options.socket = socket;
  if (const char* job = std::getenv("RUEDA_JOB")) options.job = job;
  return options;
}

}  // namespace rueda::client
