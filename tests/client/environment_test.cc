// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>

#include "client/cpp/options.h"

namespace {

using rueda::client::Options;
using rueda::client::optionsFromEnvironment;
using rueda::shm::Code;

// The variables of the client as a test wants them; those of the machine are gone until the end.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    for (const std::string suffix : {"RANK",
                                     "SIZE",
                                     "LOCAL_RANK",
                                     "LOCAL_SIZE",
                                     "CROSS_RANK",
                                     "CROSS_SIZE",
                                     "HOSTNAME",
                                     "SOCKET",
                                     "JOB",
                                     "START_TIMEOUT",
                                     "ISOLATED",
                                     "FUSION_THRESHOLD",
                                     "CYCLE_TIME",
                                     "STALL_CHECK_TIME_SECONDS",
                                     "STALL_SHUTDOWN_TIME_SECONDS",
                                     "STALL_CHECK_DISABLE",
                                     "DISABLE_GROUP_FUSION",
                                     "FUSION_LOOK_BACK",
                                     "TIMELINE",
                                     "TIMELINE_MARK_CYCLES"})
      for (const std::string prefix : {"RUEDA_", "HOROVOD_"}) {
        const std::string name = prefix + suffix;
        if (const char* value = ::getenv(name.c_str())) saved_[name] = value;
        ::unsetenv(name.c_str());
      }
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    set_ = variables;
  }
  ~Environment() {
    for (const auto& [name, value] : set_) ::unsetenv(name.c_str());
    for (const auto& [name, value] : saved_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::map<std::string, std::string> set_;
  std::map<std::string, std::string> saved_;
};

std::string refusal(const std::map<std::string, std::string>& variables) {
  const Environment environment(variables);
  const auto options = optionsFromEnvironment();
  if (options.isOk()) return "";
  return options.status().code() == Code::kInvalidArgument ? options.status().message()
                                                           : "wrong code";
}

}  // namespace

TEST_CASE("without variables a process is a job of one at the system daemon") {
  const Environment environment({});
  const auto options = optionsFromEnvironment();
  REQUIRE(options.isOk());
  CHECK(options.value().rank == 0);
  CHECK(options.value().size == 1);
  CHECK(options.value().localRank == 0);
  CHECK(options.value().localSize == 1);
  CHECK(options.value().socket == "/run/rueda/rueda.sock");
  CHECK(options.value().job == "default");
  CHECK(options.value().startTimeoutMs == 30000);
  CHECK_FALSE(options.value().isolated);
  CHECK(options.value().timeline.empty());
  CHECK_FALSE(options.value().marksCycles);
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  CHECK(options.value().hostname == host);
}

TEST_CASE("every variable arrives in its field") {
  const Environment environment({{"RUEDA_RANK", "3"},
                                 {"RUEDA_SIZE", "8"},
                                 {"RUEDA_LOCAL_RANK", "1"},
                                 {"RUEDA_LOCAL_SIZE", "4"},
                                 {"RUEDA_CROSS_RANK", "1"},
                                 {"RUEDA_CROSS_SIZE", "2"},
                                 {"RUEDA_HOSTNAME", "node"},
                                 {"RUEDA_SOCKET", "@s"},
                                 {"RUEDA_JOB", "train"},
                                 {"RUEDA_START_TIMEOUT", "7"},
                                 {"RUEDA_ISOLATED", "1"}});
  const auto options = optionsFromEnvironment();
  REQUIRE(options.isOk());
  CHECK(options.value().rank == 3);
  CHECK(options.value().size == 8);
  CHECK(options.value().localRank == 1);
  CHECK(options.value().localSize == 4);
  CHECK(options.value().crossRank == 1);
  CHECK(options.value().crossSize == 2);
  CHECK(options.value().hostname == "node");
  CHECK(options.value().socket == "@s");
  CHECK(options.value().job == "train");
  CHECK(options.value().startTimeoutMs == 7000);
  CHECK(options.value().isolated);
}

TEST_CASE("Horovod's names are read where ours are missing, and only there") {
  const Environment environment({{"HOROVOD_RANK", "1"},
                                 {"HOROVOD_SIZE", "2"},
                                 {"HOROVOD_HOSTNAME", "theirs"},
                                 {"RUEDA_HOSTNAME", "ours"},
                                 {"HOROVOD_SOCKET", "@not-a-name-of-horovod"}});
  const auto options = optionsFromEnvironment();
  REQUIRE(options.isOk());
  CHECK(options.value().rank == 1);
  CHECK(options.value().size == 2);
  CHECK(options.value().localRank == 1);  // As the rank, where nothing says otherwise.
  CHECK(options.value().localSize == 2);
  CHECK(options.value().hostname == "ours");
  CHECK(options.value().socket == "/run/rueda/rueda.sock");
}

TEST_CASE("a timeline is a path or DYNAMIC, and its cycles a number") {
  const Environment environment(
      {{"HOROVOD_TIMELINE", "/tmp/t.json"}, {"HOROVOD_TIMELINE_MARK_CYCLES", "1"}});
  const auto options = optionsFromEnvironment();
  REQUIRE(options.isOk());
  CHECK(options.value().timeline == "/tmp/t.json");
  CHECK(options.value().marksCycles);
  CHECK(refusal({{"RUEDA_TIMELINE_MARK_CYCLES", "yes"}}) != "");
}

TEST_CASE("half of a pair is refused with what is missing and what is there") {
  CHECK(refusal({{"RUEDA_RANK", "1"}}) == "RUEDA_SIZE is missing, while RUEDA_RANK='1'");
  CHECK(refusal({{"HOROVOD_SIZE", "2"}}) == "RUEDA_RANK is missing, while HOROVOD_SIZE='2'");
  CHECK(refusal({{"RUEDA_LOCAL_SIZE", "2"}}) ==
        "RUEDA_LOCAL_RANK is missing, while RUEDA_LOCAL_SIZE='2'");
  CHECK(refusal({{"RUEDA_RANK", "0"}, {"HOROVOD_SIZE", "1"}}) == "");
}

TEST_CASE("what is no number, or none that can be, is refused by name and value") {
  const std::string wrong = GENERATE("", "x", "1x", "1.5", "0x1", "-1", "1 ");
  CHECK(refusal({{"RUEDA_RANK", wrong}, {"RUEDA_SIZE", "4"}}) ==
        "RUEDA_RANK='" + wrong + "' is not a number of at least 0");
  CHECK(refusal({{"HOROVOD_TIMELINE_MARK_CYCLES", wrong}}) ==
        "HOROVOD_TIMELINE_MARK_CYCLES='" + wrong + "' is not a number of at least 0");
}

// Once they were said to be no number of at least 0.
TEST_CASE("what is too large is refused with the limit") {
  const std::string wrong = GENERATE("2147483648", "99999999999999999999");
  CHECK(refusal({{"RUEDA_DISABLE_GROUP_FUSION", wrong}}) ==
        "RUEDA_DISABLE_GROUP_FUSION='" + wrong + "' is not a number from 0 to 2147483647");
}

TEST_CASE("a rank is less than its size") {
  CHECK(refusal({{"RUEDA_CROSS_RANK", "7"}, {"RUEDA_CROSS_SIZE", "2"}}) ==
        "RUEDA_CROSS_RANK: host 7 of 2");
  CHECK(refusal({{"RUEDA_RANK", "2"}, {"RUEDA_SIZE", "2"}}) == "rank 2 of a job of 2");
  CHECK(refusal({{"RUEDA_RANK", "0"}, {"RUEDA_SIZE", "0"}}) != "");
}

// Once a cycle time above a second became one second, and nobody was told; and a start timeout
// wrapped around 32 bits of milliseconds.
TEST_CASE("the most that a variable may be is taken as it is, and more is refused with the range") {
  struct Variant {
    std::string suffix;
    std::string most, more;
    int64_t taken;
    int64_t (*field)(const Options&);
    std::string range;
  };
  const Variant variants[] = {
      {"CYCLE_TIME", "1000", "1000.1", 1000000,
       [](const Options& o) { return o.knobs.cycleMicros; }, "0 to 1000"},
      {"FUSION_THRESHOLD", "1099511627776", "1099511627777", int64_t{1} << 40,
       [](const Options& o) { return o.knobs.fusionBytes; }, "0 to 1099511627776"},
      {"STALL_CHECK_TIME_SECONDS", "2592000", "2592001", 2592000000,
       [](const Options& o) { return o.knobs.stallWarnMs; }, "0 to 2592000"},
      {"STALL_SHUTDOWN_TIME_SECONDS", "2592000", "1e300", 2592000000,
       [](const Options& o) { return o.knobs.stallShutdownMs; }, "0 to 2592000"},
      {"FUSION_LOOK_BACK", "256", "257", 256,
       [](const Options& o) { return int64_t{o.knobs.fusionLookBack}; }, "0 to 256"},
      {"START_TIMEOUT", "4294967", "4294968", 4294967000,
       [](const Options& o) { return int64_t{o.startTimeoutMs}; }, "1 to 4294967"},
  };
  for (const Variant& variant : variants)
    for (const std::string prefix : {"RUEDA_", "HOROVOD_"}) {
      const std::string name = prefix + variant.suffix;
      CAPTURE(name);
      {
        const Environment environment(std::map<std::string, std::string>{{name, variant.most}});
        const auto options = optionsFromEnvironment();
        REQUIRE(options.isOk());
        CHECK(variant.field(options.value()) == variant.taken);
      }
      for (const std::string& wrong : {variant.more, std::string("inf"), std::string("-1")})
        CHECK(refusal({{name, wrong}}) ==
              name + "='" + wrong + "' is not a number from " + variant.range);
    }
}

TEST_CASE("knobs are read in their units, 0 is off, and nonsense is named") {
  const Environment environment({{"HOROVOD_FUSION_THRESHOLD", "1024"},
                                 {"RUEDA_CYCLE_TIME", "2.5"},
                                 {"HOROVOD_CYCLE_TIME", "9"},
                                 {"HOROVOD_STALL_CHECK_TIME_SECONDS", "0"},
                                 {"HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "7"},
                                 {"HOROVOD_DISABLE_GROUP_FUSION", "1"}});
  const auto options = optionsFromEnvironment();
  REQUIRE(options.isOk());
  const rueda::shm::Knobs& knobs = options.value().knobs;
  CHECK(knobs.fusionBytes == 1024);
  CHECK(knobs.cycleMicros == 2500);
  CHECK(knobs.stallWarnMs == -1);
  CHECK(knobs.stallShutdownMs == 7000);
  CHECK(knobs.groupsApart == 1);
  CHECK(knobs.fusionLookBack == 0);
  CHECK(refusal({{"RUEDA_CYCLE_TIME", "-1"}}) ==
        "RUEDA_CYCLE_TIME='-1' is not a number from 0 to 1000");
  CHECK(refusal({{"HOROVOD_FUSION_THRESHOLD", "much"}}) ==
        "HOROVOD_FUSION_THRESHOLD='much' is not a number from 0 to 1099511627776");
}
