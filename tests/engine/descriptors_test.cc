// SPDX-License-Identifier: Apache-2.0

// Clients that send descriptors to the daemon where the kernel does not refuse them.

#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/kit/bystander.h"
#include "tests/kit/hostile_client.h"

namespace {

using rueda::flow::StateView;
using rueda::kit::Bystander;
using rueda::kit::DaemonFixture;
using rueda::kit::DaemonSetup;
using rueda::kit::HostileClient;
using rueda::shm::Fd;

// A TCP socket whose last close() waits for a peer that never reads.
class SlowToClose {
 public:
  SlowToClose() : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    ::bind(listener_.get(), raw, bytes);
    ::listen(listener_.get(), 1);
    ::getsockname(listener_.get(), raw, &bytes);
    slow = Fd(::socket(AF_INET, SOCK_STREAM, 0));
    const linger forLong{1, 3600};
    ::setsockopt(slow.get(), SOL_SOCKET, SO_LINGER, &forLong, sizeof forLong);
    ::connect(slow.get(), raw, bytes);
    peer_ = Fd(::accept(listener_.get(), nullptr, nullptr));
    const std::vector<char> block(1 << 16);
    while (::send(slow.get(), block.data(), block.size(), MSG_DONTWAIT) > 0) {
    }
  }
  // Lets whoever is closing it go on.
  void release() {
    const linger none{1, 0};
    ::setsockopt(peer_.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
    peer_.reset();
  }

  Fd slow;

 private:
  Fd listener_;
  Fd peer_;
};

bool hasThread(const std::string& name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string comm;
    std::ifstream file(task.path() / "comm");
    std::getline(file, comm);
    if (comm == name) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a descriptor that is slow to close holds nobody up, though the kernel lets it in") {
  // Once, whoever sent one and left it to the daemon to close it stopped the engine.
  DaemonSetup setup;
  setup.engine.lobby.refuseDescriptors = false;
  DaemonFixture daemon(setup);
  Bystander bystander(daemon);
  // In a packet that is read, or in one that is not, since the first ends the session.
  const bool isUnread = GENERATE(false, true);
  SlowToClose trap;
  HostileClient client(daemon.socket());
  daemon.pause();  // The daemon's copy must be the last.
  const auto hello = HostileClient::hello(0, 1);
  const int fd = trap.slow.get();
  rueda::shm::Hello broken = hello;
  broken.header.magic = 0;
  if (isUnread)
    CHECK(rueda::shm::sendPacket(client.socket(), &broken, sizeof broken, nullptr, 0).isOk());
  CHECK(rueda::shm::sendPacket(client.socket(), &hello, sizeof hello, &fd, 1).isOk());
  trap.slow.reset();
  client.close();
  daemon.resume();
  CHECK(bystander.isWell());
  CHECK(daemon.eventually([](const StateView& view) { return view.sessionsRejected > 0; }));
  CHECK(bystander.isWell());
  CHECK(hasThread("disposer"));
  // Nor are others kept from hearing that they have been shown the door.
  HostileClient other(daemon.socket());
  CHECK(rueda::shm::sendPacket(other.socket(), &broken, sizeof broken, nullptr, 0).isOk());
  CHECK(other.isClosed());
  trap.release();
}
