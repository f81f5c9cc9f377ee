// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/event_loop.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

namespace {

using rueda::base::EventLoop;
using rueda::base::Ready;
using rueda::shm::Fd;
using std::chrono::milliseconds;

Fd eventFd() { return Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

void ring(const Fd& fd) {
  const uint64_t one = 1;
  REQUIRE(::write(fd.get(), &one, sizeof one) == sizeof one);
}
void silence(const Fd& fd) {
  uint64_t count = 0;
  REQUIRE(::read(fd.get(), &count, sizeof count) == sizeof count);
}

// From now on this process gets `error` for a system call, as under a container's profile.
bool forbid(uint32_t call, uint32_t error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),  // The number of the call.
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{4, filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace

TEST_CASE("a loop that watches nothing waits for its time") {
  EventLoop loop;
  CHECK(loop.wait(milliseconds(0)).empty());
  CHECK(loop.wait(milliseconds(5)).empty());
}

TEST_CASE("what is ready comes back under its tag, for as long as it is ready") {
  EventLoop loop;
  const Fd fd = eventFd();
  const uint64_t id = GENERATE(uint64_t{0}, uint64_t{42}, (uint64_t{1} << 56) - 1);
  REQUIRE(loop.watch(fd.get(), {7, id}).isOk());
  CHECK(loop.wait(milliseconds(0)).empty());
  ring(fd);
  for (int i = 0; i < 2; ++i) {
    const auto ready = loop.wait(milliseconds(0));
    REQUIRE(ready.size() == 1);
    CHECK(ready[0].tag.kind == 7);
    CHECK(ready[0].tag.id == id);
    CHECK(ready[0].readable);
    CHECK_FALSE(ready[0].writable);
    CHECK_FALSE(ready[0].hangup);
  }
  silence(fd);
  CHECK(loop.wait(milliseconds(0)).empty());
}

TEST_CASE("an edge comes back once for each time it is rung") {
  EventLoop loop;
  const Fd fd = eventFd();
  REQUIRE(loop.watchEdges(fd.get(), {1, 1}).isOk());
  for (int i = 0; i < 3; ++i) {
    ring(fd);
    CHECK(loop.wait(milliseconds(0)).size() == 1);
    CHECK(loop.wait(milliseconds(0)).empty());
  }
}

TEST_CASE("what is forgotten does not come back") {
  EventLoop loop;
  const Fd fd = eventFd();
  REQUIRE(loop.watch(fd.get(), {1, 1}).isOk());
  ring(fd);
  loop.forget(fd.get());
  CHECK(loop.wait(milliseconds(0)).empty());
  loop.forget(fd.get());  // Of nothing: nothing.
}

TEST_CASE("room to write is told only while it is asked for") {
  int fds[2] = {-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds) == 0);
  const Fd near(fds[0]);
  Fd far(fds[1]);
  EventLoop loop;
  REQUIRE(loop.watch(near.get(), {1, 1}).isOk());
  CHECK(loop.wait(milliseconds(0)).empty());
  loop.changeWatch(near.get(), {1, 2}, true);
  const auto ready = loop.wait(milliseconds(0));
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].writable);
  CHECK(ready[0].tag.id == 2);
  loop.changeWatch(near.get(), {1, 2}, false);
  CHECK(loop.wait(milliseconds(0)).empty());
  far.reset();
  const auto gone = loop.wait(milliseconds(0));
  REQUIRE(gone.size() == 1);
  CHECK(gone[0].hangup);
}

TEST_CASE("a descriptor that cannot be watched is an error") {
  EventLoop loop;
  CHECK_FALSE(loop.watch(-1, {1, 1}).isOk());
  const Fd fd = eventFd();
  REQUIRE(loop.watch(fd.get(), {1, 1}).isOk());
  CHECK_FALSE(loop.watch(fd.get(), {1, 1}).isOk());  // Twice.
}

TEST_CASE("more than one look can take comes back in several") {
  EventLoop loop;
  std::vector<Fd> fds;
  for (uint64_t i = 0; i < 300; ++i) {
    fds.push_back(eventFd());
    REQUIRE(loop.watch(fds.back().get(), {1, i}).isOk());
    ring(fds.back());
  }
  size_t seen = 0;
  while (seen < fds.size()) {
    const auto ready = loop.wait(milliseconds(0));
    REQUIRE_FALSE(ready.empty());
    REQUIRE(ready.size() <= 256);
    for (const Ready& one : ready) silence(fds[one.tag.id]);
    seen += ready.size();
  }
  CHECK(loop.wait(milliseconds(0)).empty());
}

TEST_CASE("a wait without a limit ends when another thread rings") {
  EventLoop loop;
  const Fd fd = eventFd();
  REQUIRE(loop.watch(fd.get(), {1, 9}).isOk());
  std::thread ringer([&fd] {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd.get(), &one, sizeof one);
  });
  const auto ready = loop.wait(std::nullopt);
  ringer.join();
  REQUIRE(ready.size() == 1);
  CHECK(ready[0].tag.id == 9);
}

// Without the fallback every wait with a limit ended at once: the engine used a core while idle.
TEST_CASE("waits keep their time where the system lacks or forbids the finer call") {
  const uint32_t error = GENERATE(ENOSYS, EPERM);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!forbid(__NR_epoll_pwait2, error)) ::_exit(2);
    EventLoop loop;
    const Fd fd = eventFd();
    if (!loop.watch(fd.get(), {1, 7}).isOk()) ::_exit(3);
    for (const auto limit : {std::chrono::microseconds(30), std::chrono::microseconds(20500)}) {
      const auto begin = std::chrono::steady_clock::now();
      if (!loop.wait(limit).empty()) ::_exit(4);
      if (std::chrono::steady_clock::now() - begin < limit) ::_exit(5);
    }
    ring(fd);
    const auto ready = loop.wait(std::chrono::seconds(20));
    ::_exit(ready.size() == 1 && ready[0].tag.id == 7 ? 0 : 6);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
