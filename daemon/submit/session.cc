// SPDX-License-Identifier: Apache-2.0
#include "daemon/submit/session.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "shm/memfd.h"

namespace rueda::submit {

using shm::Code;
using shm::Status;

namespace {

constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD, Linux 6.5; absent in older headers.

// A descriptor of the peer process, immune to the reuse of its pid where the kernel can give it.
shm::Fd openPidfd(int socket, pid_t pid) {
  int fd = -1;
  socklen_t bytes = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &bytes) == 0) return shm::Fd(fd);
  return shm::Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

Session::Session(flow::SessionId id, shm::Fd socket, const shm::PeerCredentials& peer,
                 flow::TimePoint now)
    : id_(id),
      socket_(std::move(socket)),
      pidfd_(openPidfd(socket_.get(), peer.pid)),
      peer_(peer),
      since_(now) {}

Status Session::open(const Greeting& hello, const shm::Welcome& welcome, int boardFd) {
  greeting = hello;
  RUEDA_ASSIGN_OR_RETURN(const shm::Fd memfd,
                         shm::createSealedMemfd("rueda-control", shm::kControlBytes));
  RUEDA_ASSIGN_OR_RETURN(mapping_, shm::Mapping::map(memfd.get(), shm::kControlBytes));
  mapping_.touch();
  doorbell_ = shm::Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!doorbell_.valid()) return Status::fromErrno(Code::kResourceExhausted, "eventfd", errno);
  control()->daemonAsleep.store(shm::kAsleep, std::memory_order_seq_cst);
  submissions_ = shm::RingConsumer(mapping_.data() + shm::kSubmissionOffset, &control()->submitTail,
                                   &control()->submitHead);
  const int fds[] = {memfd.get(), doorbell_.get(), boardFd};
  return shm::sendPacket(socket_.get(), &welcome, sizeof welcome, fds, 3);
}

shm::ControlHeader* Session::control() const {
  return reinterpret_cast<shm::ControlHeader*>(mapping_.data());
}

Status Session::sendBytes(const void* data, size_t bytes,
                          std::shared_ptr<const flow::Segment> segment) {
  if (outbox_.size() >= kMaxOutbox)
    return {Code::kResourceExhausted,
            "the client has not read " + std::to_string(kMaxOutbox) + " messages"};
  const auto* first = static_cast<const char*>(data);
  outbox_.push_back({std::vector<char>(first, first + bytes), std::move(segment)});
  flushOutbox();
  return Status::ok();
}

bool Session::flushOutbox() {
  while (!outbox_.empty()) {
    const Waiting& next = outbox_.front();
    const int fd = next.segment ? next.segment->memfd.get() : -1;
    const Status sent =
        shm::sendPacket(socket_.get(), next.bytes.data(), next.bytes.size(), &fd, fd >= 0 ? 1 : 0);
    if (sent.code() == Code::kUnavailable) return false;
    outbox_.pop_front();  // A closed socket ends the session through its own event.
  }
  return true;
}

}  // namespace rueda::submit
