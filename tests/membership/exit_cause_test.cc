// SPDX-License-Identifier: Apache-2.0
#include "daemon/membership/exit_cause.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "shm/fd.h"
#include "tests/kit/child.h"

using namespace rueda;  // NOLINT(google-build-using-namespace): a test file
using kit::Child;

namespace {

std::string statOf(const std::string& command, char state, int waitStatus) {
  std::string text = "123 (" + command + ") " + state;
  for (int field = 4; field <= 51; ++field) text += " " + std::to_string(field);
  return text + " " + std::to_string(waitStatus) + "\n";
}

shm::Fd pidfdOf(pid_t pid) { return shm::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

}  // namespace

TEST_CASE("a process's stat line is read behind whatever its command is called") {
  const auto command = GENERATE(as<std::string>(), "python3", "a b", "x) R 1 2 (", ")))", "");
  const auto stat = membership::parseProcessStat(statOf(command, 'Z', 9));
  REQUIRE(stat.state == 'Z');
  REQUIRE(stat.threads == 20);
  REQUIRE(stat.waitStatus == 9);
}

TEST_CASE("a stat line that is cut short has no wait status") {
  REQUIRE(membership::parseProcessStat("").state == '?');
  REQUIRE(membership::parseProcessStat("1 (x) S 1 2 3").state == 'S');
  REQUIRE(membership::parseProcessStat("1 (x) S 1 2 3").threads == 0);
  REQUIRE(membership::parseProcessStat("1 (x) S 1 2 3").waitStatus == -1);
}

TEST_CASE("wait statuses become words") {
  REQUIRE(membership::describeWaitStatus(9) == "was killed by signal 9 (Killed)");
  REQUIRE(membership::describeWaitStatus(0) == "exited with code 0");
  REQUIRE(membership::describeWaitStatus(3 << 8) == "exited with code 3");
}

TEST_CASE("the cause of a child's end is told before and after it was reaped") {
  SECTION("killed") {
    Child child([] {
      for (;;) ::pause();
      return 0;
    });
    const shm::Fd pidfd = pidfdOf(child.pid());
    const pid_t pid = child.pid();
    REQUIRE(membership::exitCause(pid, pidfd.get()) == "closed its connection");
    child.kill(SIGKILL);
    child.awaitEnd();
    REQUIRE(membership::exitCause(pid, pidfd.get()) == "was killed by signal 9 (Killed)");
  }
  SECTION("exit code") {
    Child child([] { return 7; });
    const shm::Fd pidfd = pidfdOf(child.pid());
    child.awaitEnd();
    REQUIRE(membership::exitCause(child.pid(), pidfd.get()) == "exited with code 7");
  }
}

TEST_CASE("the threads of a process are counted, where it can be seen") {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::thread first([ended] { ended.wait(); });  // A sanitizer may start one of its own with it.
  const uint64_t before = membership::threadsOf(::getpid());
  std::thread second([ended] { ended.wait(); });
  const uint64_t after = membership::threadsOf(::getpid());
  end.set_value();
  first.join();
  second.join();
  CHECK(before >= 2);
  CHECK(after == before + 1);
  CHECK(membership::threadsOf(0) == 0);
}

TEST_CASE("a stopped process is seen as stopped, a running one not") {
  Child child([] {
    for (;;) ::pause();
    return 0;
  });
  REQUIRE_FALSE(membership::isStopped(child.pid()));
  child.kill(SIGSTOP);
  child.awaitStop();
  REQUIRE(membership::isStopped(child.pid()));
}
