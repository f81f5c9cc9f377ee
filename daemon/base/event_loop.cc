// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/event_loop.h"

#include <sys/epoll.h>

#include <atomic>
#include <cerrno>

namespace rueda::base {
namespace {

constexpr int kMaxEvents = 256;

epoll_event toEpoll(Tag tag, bool writable) {
  epoll_event event{};
  event.events = EPOLLIN | (writable ? EPOLLOUT : 0u);
  event.data.u64 = uint64_t{tag.kind} << 56 | tag.id;
  return event;
}

int waitFor(int epoll, epoll_event* events, std::optional<std::chrono::microseconds> timeout) {
  if (!timeout) return ::epoll_wait(epoll, events, kMaxEvents, -1);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*timeout);
  const timespec span{seconds.count(), std::chrono::nanoseconds(*timeout - seconds).count()};
  // Missing before Linux 5.11, and forbidden by container profiles that do not know it.
  static std::atomic<bool> isMissing{false};
  if (!isMissing.load(std::memory_order_relaxed)) {
    const int count = ::epoll_pwait2(epoll, events, kMaxEvents, &span, nullptr);
    if (count >= 0 || errno == EINTR) return count;
    isMissing.store(true, std::memory_order_relaxed);
  }
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(*timeout);
  return ::epoll_wait(epoll, events, kMaxEvents, static_cast<int>(milliseconds.count()));
}

}  // namespace

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) { RUEDA_CHECK(epoll_.valid()); }

shm::Status EventLoop::watch(int fd, Tag tag, bool writable) {
  epoll_event event = toEpoll(tag, writable);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return shm::Status::fromErrno(shm::Code::kResourceExhausted, "epoll_ctl", errno);
  return shm::Status::ok();
}

shm::Status EventLoop::watchEdges(int fd, Tag tag) {
  epoll_event event = toEpoll(tag, false);
  event.events |= EPOLLET;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return shm::Status::fromErrno(shm::Code::kResourceExhausted, "epoll_ctl", errno);
  return shm::Status::ok();
}

void EventLoop::changeWatch(int fd, Tag tag, bool writable) {
  epoll_event event = toEpoll(tag, writable);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::forget(int fd) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::vector<Ready> EventLoop::wait(std::optional<std::chrono::microseconds> timeout) {
  epoll_event events[kMaxEvents];
  const int count = waitFor(epoll_.get(), events, timeout);
  std::vector<Ready> ready;
  for (int i = 0; i < count; ++i) {
    const uint64_t data = events[i].data.u64;
    ready.push_back({{static_cast<uint32_t>(data >> 56), data & ((uint64_t{1} << 56) - 1)},
                     (events[i].events & EPOLLIN) != 0,
                     (events[i].events & EPOLLOUT) != 0,
                     (events[i].events & (EPOLLHUP | EPOLLERR)) != 0});
  }
  return ready;
}

}  // namespace rueda::base
