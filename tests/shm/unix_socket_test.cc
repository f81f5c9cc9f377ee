// SPDX-License-Identifier: Apache-2.0
#include "shm/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tests/kit/abstract_address.h"
#include "tests/kit/temp_dir.h"

namespace {

using namespace rueda::shm;  // NOLINT: the whole header is under test.
using rueda::kit::abstractAddress;
using rueda::kit::TempDir;

// Two ends of a connection of the product's kind.
struct Ends {
  Ends() {
    int fds[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0) {
      near = Fd(fds[0]);
      far = Fd(fds[1]);
    }
  }
  Fd near;
  Fd far;
};

size_t openFds() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// Sends bytes with `count` copies of descriptor `fd`, past the limits of sendPacket.
bool sendWithFds(int socket, const void* data, size_t bytes, int fd, size_t count) {
  iovec part{const_cast<void*>(data), bytes};
  std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(count * sizeof(int));
  for (size_t i = 0; i < count; ++i) std::memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof fd);
  return ::sendmsg(socket, &header, 0) == static_cast<ssize_t>(bytes);
}

const PlainMessage kGoodbye = makeMessage<PlainMessage>(MessageType::kGoodbye);

}  // namespace

TEST_CASE("a message and its descriptors arrive together") {
  Ends ends;
  const int fds[] = {ends.near.get(), ends.far.get(), ends.near.get()};
  const auto hello = makeMessage<Hello>(MessageType::kHello);
  REQUIRE(sendPacket(ends.near.get(), &hello, sizeof hello, fds, 3).isOk());
  Packet packet;
  const auto got = receivePacket(ends.far.get(), false, &packet);
  REQUIRE(got.isOk());
  CHECK(got.value() == ReceiveState::kPacket);
  CHECK(packet.type() == MessageType::kHello);
  CHECK(packet.as<Hello>(MessageType::kHello) != nullptr);
  CHECK(packet.as<Notice>(MessageType::kHello) == nullptr);   // Wrong size.
  CHECK(packet.as<Hello>(MessageType::kWelcome) == nullptr);  // Wrong type.
  REQUIRE(packet.fds.size() == 3);
  for (const Fd& fd : packet.fds) CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("nothing sent is no packet, a closed peer is told once nothing is left to read") {
  Ends ends;
  Packet packet;
  CHECK(receivePacket(ends.far.get(), false, &packet).value() == ReceiveState::kWouldBlock);
  REQUIRE(sendMessage(ends.near.get(), kGoodbye).isOk());
  ends.near.reset();
  CHECK(receivePacket(ends.far.get(), false, &packet).value() == ReceiveState::kPacket);
  CHECK(receivePacket(ends.far.get(), false, &packet).value() == ReceiveState::kClosed);
  CHECK(sendMessage(ends.far.get(), kGoodbye).code() == Code::kDaemonLost);
}

TEST_CASE("a peer that closed with unread messages has its last word heard") {
  // Once the reset that the kernel reports first was taken for the end.
  Ends ends;
  REQUIRE(sendMessage(ends.far.get(), kGoodbye).isOk());  // Never read.
  REQUIRE(sendMessage(ends.near.get(), kGoodbye).isOk());
  ends.near.reset();
  Packet packet;
  CHECK(receivePacket(ends.far.get(), false, &packet).value() == ReceiveState::kPacket);
  CHECK(receivePacket(ends.far.get(), false, &packet).value() == ReceiveState::kClosed);
}

TEST_CASE("a flood of descriptors is refused, and none of them stays open") {
  Ends ends;
  const size_t before = openFds();
  const size_t count = GENERATE(kMaxFdsPerMessage + 1, size_t{253});
  {
    Packet packet;
    REQUIRE(sendWithFds(ends.near.get(), &kGoodbye, sizeof kGoodbye, ends.near.get(), count));
    const auto got = receivePacket(ends.far.get(), false, &packet);
    CHECK(got.status().code() == Code::kProtocolError);
    CHECK(got.status().message() == std::to_string(count) + " descriptors in one message");
  }
  CHECK(openFds() == before);
}

TEST_CASE("descriptors in an empty message do not stay open") {
  // Once they did, for as long as the process lived.
  Ends ends;
  const size_t before = openFds();
  {
    Packet packet;
    REQUIRE(sendWithFds(ends.near.get(), "", 0, ends.near.get(), 4));
    CHECK(receivePacket(ends.far.get(), false, &packet).value() == ReceiveState::kClosed);
  }
  CHECK(openFds() == before);
}

TEST_CASE("a message longer than any of ours is refused, not cut") {
  Ends ends;
  const std::vector<char> large(kMaxMessageBytes + 1, 'x');
  REQUIRE(::send(ends.near.get(), large.data(), large.size(), 0) ==
          static_cast<ssize_t>(large.size()));
  Packet packet;
  const auto got = receivePacket(ends.far.get(), false, &packet);
  CHECK(got.status().code() == Code::kProtocolError);
  CHECK(got.status().message() == "message or its descriptors were cut");
}

TEST_CASE("a header that does not fit its message is refused") {
  Ends ends;
  PlainMessage message = kGoodbye;
  size_t bytes = sizeof message;
  SECTION("wrong magic") { message.header.magic ^= 1; }
  SECTION("a size that is not that of the packet") { message.header.bytes += 1; }
  SECTION("shorter than a header") { bytes = sizeof message - 1; }
  SECTION("one byte") { bytes = 1; }
  REQUIRE(::send(ends.near.get(), &message, bytes, 0) == static_cast<ssize_t>(bytes));
  Packet packet;
  CHECK(receivePacket(ends.far.get(), false, &packet).status().code() == Code::kProtocolError);
}

TEST_CASE("a full socket says so and takes more once it has been read") {
  Ends ends;
  ::fcntl(ends.near.get(), F_SETFL, O_NONBLOCK);
  int sent = 0;
  Status status;
  while ((status = sendMessage(ends.near.get(), kGoodbye)).isOk()) ++sent;
  CHECK(status.code() == Code::kUnavailable);
  REQUIRE(sent > 0);
  Packet packet;
  for (int i = 0; i < sent; ++i)
    REQUIRE(receivePacket(ends.far.get(), false, &packet).value() == ReceiveState::kPacket);
  CHECK(sendMessage(ends.near.get(), kGoodbye).isOk());
}

TEST_CASE("clients reach a listener at a path and at an abstract name, and it knows them") {
  const TempDir dir;
  const std::string address = GENERATE(false, true) ? dir.file("s") : abstractAddress();
  const auto listener = listenUnix(address, 0600);
  REQUIRE(listener.isOk());
  CHECK(acceptUnix(listener.value().get()).status().code() == Code::kUnavailable);  // Nobody waits.
  const auto client = connectUnix(address);
  REQUIRE(client.isOk());
  const auto accepted = acceptUnix(listener.value().get());
  REQUIRE(accepted.isOk());
  CHECK((::fcntl(accepted.value().get(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((::fcntl(accepted.value().get(), F_GETFD) & FD_CLOEXEC) != 0);
  const auto peer = peerCredentials(accepted.value().get());
  REQUIRE(peer.isOk());
  CHECK(peer.value().pid == ::getpid());
  CHECK(peer.value().uid == ::getuid());
}

TEST_CASE("an abstract socket leaves nothing behind") {
  const std::string address = abstractAddress();
  { const auto listener = listenUnix(address, 0600); }
  CHECK(connectUnix(address).status().code() == Code::kUnavailable);
  CHECK(listenUnix(address, 0600).isOk());
}

TEST_CASE("the mode of a socket is the one asked for") {
  const TempDir dir;
  const mode_t mode = GENERATE(0600, 0666);
  const auto listener = listenUnix(dir.file("s"), mode);
  REQUIRE(listener.isOk());
  struct stat info {};
  REQUIRE(::stat(dir.file("s").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == mode);
}

TEST_CASE("a second listener is refused, and the first is not disturbed") {
  const TempDir dir;
  const std::string address = GENERATE(false, true) ? dir.file("s") : abstractAddress();
  const auto first = listenUnix(address, 0600);
  REQUIRE(first.isOk());
  const auto second = listenUnix(address, 0600);
  CHECK(second.status().code() == Code::kAlreadyExists);
  CHECK(second.status().message() == "another daemon listens on " + address);
  CHECK(connectUnix(address).isOk());
}

TEST_CASE("what a dead daemon left at the path is replaced") {
  const TempDir dir;
  const std::string path = dir.file("s");
  SECTION("a socket without a listener") {
    { const auto dead = listenUnix(path, 0600); }
    REQUIRE(std::filesystem::exists(path));
  }
  SECTION("an empty folder, as container run-times make") {
    REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  }
  const auto listener = listenUnix(path, 0600);
  REQUIRE(listener.isOk());
  CHECK(connectUnix(path).isOk());
}

TEST_CASE("what is not a dead socket is left alone") {
  const TempDir dir;
  const std::string path = dir.file("s");
  SECTION("a folder with something in it") {
    REQUIRE(::mkdir(path.c_str(), 0700) == 0);
    std::ofstream(path + "/precious") << "data";
    CHECK(listenUnix(path, 0600).status().message() == path + " is a directory that is not empty");
    CHECK(std::filesystem::exists(path + "/precious"));
  }
  SECTION("a file") {
    std::ofstream(path) << "data";
    CHECK(listenUnix(path, 0600).status().message() == path + " exists and is no socket");
    CHECK(std::filesystem::file_size(path) == 4);
  }
  SECTION("a symbolic link, even to nothing") {
    REQUIRE(::symlink("nowhere", path.c_str()) == 0);
    CHECK_FALSE(listenUnix(path, 0600).isOk());
    CHECK(std::filesystem::is_symlink(path));
  }
  SECTION("a living socket of another kind") {
    // Once it was unlinked, since our kind of client cannot connect to it.
    const Fd stream(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::bind(stream.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(stream.get(), 1) == 0);
    CHECK(listenUnix(path, 0600).status().code() == Code::kAlreadyExists);
    CHECK(std::filesystem::exists(path));
  }
}

TEST_CASE("addresses have 1 to 107 bytes, and failures say what to do") {
  const TempDir dir;
  const std::string tooLong(108, 'a');
  for (const std::string& address : {std::string(), tooLong}) {
    CHECK(connectUnix(address).status().code() == Code::kInvalidArgument);
    CHECK(listenUnix(address, 0600).status().code() == Code::kInvalidArgument);
  }
  CHECK(connectUnix("@" + std::string(106, 'a')).status().code() == Code::kUnavailable);
  const auto missing = connectUnix(dir.file("none")).status();
  CHECK(missing.code() == Code::kUnavailable);
  CHECK_THAT(missing.message(), Catch::Contains("is the rueda service running?"));
  { const auto dead = listenUnix(dir.file("s"), 0600); }
  CHECK_THAT(connectUnix(dir.file("s")).status().message(),
             Catch::Contains("nothing listens there, the daemon has ended"));
  CHECK(listenUnix(dir.file("no/such/folder"), 0600).status().code() == Code::kInvalidArgument);
}

TEST_CASE("texts are cut to their field, and read to its end at most") {
  char field[4] = {'x', 'x', 'x', 'x'};
  copyText(field, sizeof field, "ab");
  CHECK(fieldText(field, sizeof field) == "ab");
  copyText(field, sizeof field, "abcdef");
  CHECK(fieldText(field, sizeof field) == "abc");
  copyText(field, sizeof field, "");
  CHECK(fieldText(field, sizeof field).empty());
  std::memcpy(field, "abcd", 4);  // A peer's, without an end.
  CHECK(fieldText(field, sizeof field) == "abcd");
}
