// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/accept_loop.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <thread>

#include "tests/serve/serve_kit.h"

namespace {

using rueda::serve::AcceptLoop;
using rueda::serve::ListenSocket;
using rueda::shm::Fd;

// Connects to a port of 127.0.0.1; invalid when refused.
Fd dial(int port) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int done = connect(fd.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in);
  return done == 0 ? std::move(fd) : Fd();
}

}  // namespace

TEST_CASE("every connection of every socket is handed on, also early ones") {
  std::vector<ListenSocket> sockets;
  std::vector<int> ports;
  for (int i = 0; i < 2; ++i) {
    auto socket = ListenSocket::tcp("127.0.0.1:0", false);
    REQUIRE(socket.isOk());
    ports.push_back(socket.value().port());
    sockets.push_back(std::move(socket).value());
  }
  std::atomic<int> taken{0};
  AcceptLoop loop(std::move(sockets), [&](Fd fd) { taken += fd.valid() ? 1 : 0; });
  std::vector<Fd> clients;
  for (const int port : ports) clients.push_back(dial(port));
  REQUIRE(loop.start().isOk());
  for (int i = 0; i < 100; ++i) clients.push_back(dial(ports[i % 2]));
  for (const Fd& client : clients) REQUIRE(client.valid());
  while (taken < 102) std::this_thread::yield();  // The test's watchdog ends a wait for ever.
  loop.stop();
  CHECK(taken == 102);
}

TEST_CASE("after stop connections are refused and not queued") {
  auto socket = ListenSocket::tcp("127.0.0.1:0", false);
  REQUIRE(socket.isOk());
  const int port = socket.value().port();
  std::vector<ListenSocket> sockets;
  sockets.push_back(std::move(socket).value());
  AcceptLoop loop(std::move(sockets), [](Fd) {});
  const bool started = GENERATE(true, false);
  if (started) REQUIRE(loop.start().isOk());
  REQUIRE(dial(port).valid());
  loop.stop();
  CHECK_FALSE(dial(port).valid());
  loop.stop();
}
