// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/event_loop.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
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
