// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/settings.h"

#include <algorithm>

namespace rueda::engine {
namespace {

// A knob: 0 leaves it to the operator, less than 0 is off, which is a value of 0.
template <typename T>
T choose(int64_t knob, T operators) {
  return knob == 0 ? operators : T(knob < 0 ? 0 : knob);
}

}  // namespace

JobSettings withKnobs(const JobSettings& operators, const shm::Knobs& knobs, std::string* note) {
  JobSettings settings = operators;
  settings.fusion.fusionBytes = choose<uint64_t>(knobs.fusionBytes, operators.fusion.fusionBytes);
  // Off is to fuse only what follows each other.
  if (knobs.fusionLookBack != 0)
    settings.fusion.lookBack = static_cast<size_t>(std::max(knobs.fusionLookBack, 1));
  if (knobs.groupsApart != 0) settings.fusion.groupsApart = knobs.groupsApart > 0;
  settings.cycle = choose(knobs.cycleMicros, operators.cycle);
  settings.stallWarn = choose(knobs.stallWarnMs, operators.stallWarn);
  settings.stallShutdown = choose(knobs.stallShutdownMs, operators.stallShutdown);
  note->clear();
  if (settings.stallShutdown.count() > 0 && settings.stallShutdown < settings.stallWarn) {
    *note = "its stall shutdown time of " + std::to_string(settings.stallShutdown.count()) +
            " ms is ignored, since it is less than the stall check time of " +
            std::to_string(settings.stallWarn.count()) + " ms";
    settings.stallShutdown = std::chrono::milliseconds(0);
  }
  return settings;
}

}  // namespace rueda::engine
