// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/settings.h"

#include <catch2/catch.hpp>

using rueda::engine::JobSettings;
using rueda::engine::withKnobs;
using rueda::shm::Knobs;
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST_CASE("a job that asks for nothing is served as the operator has set it") {
  JobSettings operators;
  operators.fusion.fusionBytes = 77;
  operators.stallWarn = milliseconds(5);
  std::string note = "x";
  const JobSettings settings = withKnobs(operators, Knobs{}, &note);
  CHECK(settings.fusion.fusionBytes == 77);
  CHECK(settings.stallWarn == milliseconds(5));
  CHECK(note.empty());
}

TEST_CASE("knobs replace what the operator has set, and less than 0 turns off") {
  std::string note;
  const JobSettings settings = withKnobs(JobSettings(), {1000, 2500, 3000, 9000, 1, 3}, &note);
  CHECK(settings.fusion.fusionBytes == 1000);
  CHECK(settings.cycle == microseconds(2500));
  CHECK(settings.stallWarn == milliseconds(3000));
  CHECK(settings.stallShutdown == milliseconds(9000));
  CHECK(settings.fusion.groupsApart);
  CHECK(settings.fusion.lookBack == 3);
  const JobSettings off = withKnobs(settings, {-1, -1, -1, -1, -1, -1}, &note);
  CHECK(off.fusion.fusionBytes == 0);
  CHECK(off.cycle.count() == 0);
  CHECK(off.stallWarn.count() == 0);
  CHECK(off.stallShutdown.count() == 0);
  CHECK_FALSE(off.fusion.groupsApart);
  CHECK(off.fusion.lookBack == 1);
}

TEST_CASE("a stall shutdown before the first warning is ignored, with a note") {
  std::string note;
  const JobSettings settings = withKnobs(JobSettings(), {0, 0, 5000, 2000, 0, 0}, &note);
  CHECK(settings.stallShutdown.count() == 0);
  CHECK(note ==
        "its stall shutdown time of 2000 ms is ignored, since it is less than the stall check time "
        "of 5000 ms");
}
