// SPDX-License-Identifier: Apache-2.0
#include "shm/status.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>

#include "tests/kit/child.h"

namespace {

using rueda::shm::Code;
using rueda::shm::codeName;
using rueda::shm::Result;
using rueda::shm::Status;

Status fail(bool shouldFail) {
  return shouldFail ? Status(Code::kInternal, "failed") : Status::ok();
}
Status leaveEarly(bool shouldFail, bool* wentOn) {
  RUEDA_RETURN_IF_ERROR(fail(shouldFail));
  *wentOn = true;
  return Status::ok();
}

Result<int> number(bool isThere) {
  if (!isThere) return Status(Code::kUnavailable, "no number");
  return 42;
}
Result<std::string> asText(bool isThere) {
  RUEDA_ASSIGN_OR_RETURN(const int value, number(isThere));
  return std::to_string(value);
}

}  // namespace

TEST_CASE("a status is ok until it is given a code") {
  CHECK(Status().isOk());
  CHECK(Status::ok().toString() == "ok");
  const Status status(Code::kRankLost, "rank 1");
  CHECK_FALSE(status.isOk());
  CHECK(status.code() == Code::kRankLost);
  CHECK(status.message() == "rank 1");
  CHECK(status.toString() == "rank lost: rank 1");
  CHECK(Status(Code::kStalled, "").toString() == "stalled");
}

TEST_CASE("every code has a name of its own, and its number for ever") {
  const char* names[] = {"ok",
                         "invalid argument",
                         "already exists",
                         "mismatch",
                         "rank lost",
                         "shut down",
                         "daemon lost",
                         "not initialized",
                         "deadline exceeded",
                         "resource exhausted",
                         "permission denied",
                         "unavailable",
                         "protocol error",
                         "interrupted",
                         "internal error",
                         "unimplemented",
                         "stalled"};
  for (size_t i = 0; i < std::size(names); ++i)
    CHECK(codeName(static_cast<Code>(i)) == std::string(names[i]));
  CHECK(codeName(static_cast<Code>(17)) == std::string("unknown code"));
  CHECK(codeName(static_cast<Code>(-1)) == std::string("unknown code"));
}

TEST_CASE("an errno is told in words") {
  CHECK(Status::fromErrno(Code::kUnavailable, "opening", ENOENT).message() ==
        "opening: No such file or directory");
}

TEST_CASE("a result is a value or the reason why there is none") {
  CHECK(number(true).isOk());
  CHECK(number(true).value() == 42);
  CHECK(number(true).status().isOk());
  CHECK(number(false).status().message() == "no number");
}

TEST_CASE("a result can hold what only moves") {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = std::move(result).value();
  CHECK(*taken == 7);
}

TEST_CASE("the return macros leave on an error and only then") {
  bool wentOn = false;
  CHECK(leaveEarly(true, &wentOn).code() == Code::kInternal);
  CHECK_FALSE(wentOn);
  CHECK(leaveEarly(false, &wentOn).isOk());
  CHECK(wentOn);
  CHECK(asText(true).value() == "42");
  CHECK(asText(false).status().code() == Code::kUnavailable);
}

TEST_CASE("an own bug ends the process, in release builds too") {
  const auto aborts = [](const std::function<void()>& bug) {
    rueda::kit::Child child([&bug] {
      ::close(STDERR_FILENO);
      ::signal(SIGABRT, SIG_DFL);  // The test's own report allocates, and may wait for ever here.
      bug();
      return 0;
    });
    const int status = child.wait();
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  };
  CHECK(aborts([] { RUEDA_CHECK(1 + 1 == 3); }));
  CHECK(aborts([] { (void)number(false).value(); }));
  CHECK(aborts([] { const Result<int> wrong{Status::ok()}; }));
  CHECK_FALSE(aborts([] { RUEDA_CHECK(1 + 1 == 2); }));
}
