// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/accept_loop.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

namespace rueda::serve {
namespace {

// Connections taken from one socket before the others and the stop event get their turn.
constexpr int kBatch = 64;

// Without a pause a connection that cannot be accepted would keep poll() ready and the thread busy.
constexpr int kPauseWhenFullMs = 100;

}  // namespace

AcceptLoop::AcceptLoop(std::vector<ListenSocket> sockets, Take take)
    : sockets_(std::move(sockets)), take_(std::move(take)) {}

AcceptLoop::~AcceptLoop() { stop(); }

shm::Status AcceptLoop::start() {
  stopEvent_ = shm::Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stopEvent_.valid()) {
    return shm::Status::fromErrno(shm::Code::kResourceExhausted, "eventfd", errno);
  }
  thread_ = std::thread([this] { run(); });
  return shm::Status::ok();
}

void AcceptLoop::stop() {
  if (thread_.joinable()) {
    eventfd_write(stopEvent_.get(), 1);
    thread_.join();
  }
  sockets_.clear();
}

void AcceptLoop::run() {
  pthread_setname_np(pthread_self(), "status-accept");
  std::vector<pollfd> polled{{stopEvent_.get(), POLLIN, 0}};
  for (const ListenSocket& socket : sockets_) polled.push_back({socket.fd(), POLLIN, 0});
  for (;;) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR is the only case.
    if (polled[0].revents != 0) return;
    bool full = false;
    for (size_t i = 0; i < sockets_.size(); ++i) {
      if (polled[i + 1].revents != 0 && !drain(sockets_[i])) full = true;
    }
    if (full && poll(polled.data(), 1, kPauseWhenFullMs) > 0) return;
  }
}

bool AcceptLoop::drain(const ListenSocket& socket) {
  for (int i = 0; i < kBatch; ++i) {
    shm::Result<shm::Fd> accepted = socket.accept();
    if (accepted.isOk()) {
      take_(std::move(accepted).value());
      continue;
    }
    const shm::Code code = accepted.status().code();
    if (code == shm::Code::kResourceExhausted) return false;
    if (code != shm::Code::kPermissionDenied) return true;  // None waits any more.
  }
  return true;
}

}  // namespace rueda::serve
