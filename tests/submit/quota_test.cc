// SPDX-License-Identifier: Apache-2.0
#include "daemon/submit/quota.h"

#include <catch2/catch.hpp>
#include <limits>

namespace {

using rueda::shm::Code;
using rueda::submit::Quota;
using rueda::submit::QuotaLimits;

QuotaLimits limits() {
  QuotaLimits limits;
  limits.sessions = 3;
  limits.sessionsPerUid = 2;
  limits.jobsPerUid = 1;
  limits.bytesPerUid = 1000;
  return limits;
}

}  // namespace

TEST_CASE("a user gets as many clients as allowed, and a place back when one goes") {
  Quota quota(limits());
  REQUIRE(quota.takeSession(7).isOk());
  REQUIRE(quota.takeSession(7).isOk());
  const auto third = quota.takeSession(7);
  CHECK(third.code() == Code::kResourceExhausted);
  CHECK(third.message() == "clients of uid 7: holds 2, asks for 1, limit 2");
  quota.giveSession(7);
  CHECK(quota.takeSession(7).isOk());
}

TEST_CASE("all users together have a limit too") {
  Quota quota(limits());
  REQUIRE(quota.takeSession(1).isOk());
  REQUIRE(quota.takeSession(1).isOk());
  REQUIRE(quota.takeSession(2).isOk());
  CHECK(quota.takeSession(2).message() == "the daemon serves its limit of 3 clients");
  quota.giveSession(1);
  CHECK(quota.takeSession(3).isOk());
}

TEST_CASE("what one user holds is not held against another") {
  Quota quota(limits());
  REQUIRE(quota.takeJob(1, 0).isOk());
  CHECK(quota.takeJob(1, 0).message() == "jobs of uid 1: holds 1, asks for 1, limit 1");
  CHECK(quota.takeJob(2, 0).isOk());
  REQUIRE(quota.takeBytes(1, 1000).isOk());
  CHECK(quota.takeBytes(2, 1000).isOk());
  CHECK(quota.totalBytes() == 2000);
}

TEST_CASE("bytes are counted to the last, without wrapping") {
  Quota quota(limits());
  CHECK(quota.takeBytes(1, 1001).code() == Code::kResourceExhausted);
  REQUIRE(quota.takeBytes(1, 999).isOk());
  CHECK(quota.takeBytes(1, 2).message() ==
        "bytes of shared memory of uid 1: holds 999, asks for 2, limit 1000");
  CHECK(quota.takeBytes(1, std::numeric_limits<uint64_t>::max()).code() ==
        Code::kResourceExhausted);
  CHECK(quota.takeBytes(1, std::numeric_limits<uint64_t>::max() - 998).code() ==
        Code::kResourceExhausted);
  REQUIRE(quota.takeBytes(1, 1).isOk());
  quota.giveBytes(1, 1000);
  CHECK(quota.totalBytes() == 0);
  CHECK(quota.takeBytes(1, 1000).isOk());
}

// Once boards were outside the quota, whatever they took.
TEST_CASE("the boards of a job count as bytes of its user, as long as it is there") {
  Quota quota(limits());
  REQUIRE(quota.takeBytes(1, 500).isOk());
  CHECK(quota.takeJob(1, 501).message() ==
        "bytes of shared memory of uid 1: holds 500, asks for 501, limit 1000");
  REQUIRE(quota.takeJob(1, 500).isOk());
  CHECK(quota.takeBytes(1, 1).message() ==
        "bytes of shared memory of uid 1: holds 500, asks for 1, limit 500 beside 500 for the "
        "boards of its jobs");
  CHECK(quota.takeJob(2, 1000).isOk());
  CHECK(quota.totalBytes() == 500);
  quota.giveJob(1, 500);
  CHECK(quota.takeBytes(1, 500).isOk());
}

TEST_CASE("the memory that is left is read from the kernel's table") {
  const std::string meminfo =
      "MemTotal:       24000000 kB\nMemFree:         1000 kB\nMemAvailable:   12345 kB\n";
  CHECK(rueda::submit::parseAvailableBytes(meminfo) == 12345u * 1024);
  CHECK(rueda::submit::parseAvailableBytes("MemTotal: 1 kB\n") == 0);
  CHECK(rueda::submit::parseAvailableBytes("MemAvailable:") == 0);
  CHECK(rueda::submit::parseAvailableBytes("") == 0);
  CHECK(rueda::submit::availableBytes() > 0);
  CHECK(rueda::submit::availableBytes() <= rueda::submit::totalMemoryBytes());
}
