// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/listen_socket.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <fstream>

#include "tests/serve/serve_kit.h"

namespace {

using rueda::serve::ListenSocket;
using rueda::serve::test::privateName;
using rueda::serve::test::TempDir;
using rueda::shm::Code;
using rueda::shm::Fd;
using rueda::shm::Result;

// A connection to a path, or to an abstract name given as "@name"; invalid when refused.
Fd dial(const std::string& name, bool bindInstead = false) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path, name.data(), name.size());
  const bool abstract = name[0] == '@';
  if (abstract) un.sun_path[0] = '\0';
  const socklen_t bytes = offsetof(sockaddr_un, sun_path) + name.size() + (abstract ? 0 : 1);
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* address = reinterpret_cast<const sockaddr*>(&un);
  const int done = bindInstead ? bind(fd.get(), address, bytes) : connect(fd.get(), address, bytes);
  return done == 0 ? std::move(fd) : Fd();
}

Code codeOf(const Result<ListenSocket>& result) { return result.status().code(); }

class Umask {
 public:
  explicit Umask(mode_t mask) : before_(umask(mask)) {}
  ~Umask() { umask(before_); }

 private:
  const mode_t before_;
};

}  // namespace

TEST_CASE("a path socket has exactly its mode whatever the umask") {
  const mode_t mask = GENERATE(0, 022, 077);
  const TempDir dir;
  const Umask set(mask);
  const auto listener = ListenSocket::unixSocket("unix:" + dir.file("s"), 0660);
  REQUIRE(listener.isOk());
  struct stat info {};
  REQUIRE(lstat(dir.file("s").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0660);
}

TEST_CASE("a path socket accepts, and its file goes with it") {
  const TempDir dir;
  const std::string path = dir.file("s");
  {
    const auto listener = ListenSocket::unixSocket("unix:" + path, 0660);
    REQUIRE(listener.isOk());
    CHECK(listener.value().accept().status().code() == Code::kUnavailable);
    const Fd client = dial(path);
    REQUIRE(client.valid());
    CHECK(listener.value().accept().isOk());
  }
  CHECK(access(path.c_str(), F_OK) != 0);
}

TEST_CASE("a listening socket is not taken over") {
  const TempDir dir;
  const std::string path = dir.file("s");
  const auto first = ListenSocket::unixSocket("unix:" + path, 0660);
  REQUIRE(first.isOk());
  const auto second = ListenSocket::unixSocket("unix:" + path, 0660);
  CHECK(codeOf(second) == Code::kAlreadyExists);
  CHECK(second.status().message() == "status socket " + path + ": another process listens there");
  CHECK(dial(path).valid());
}

TEST_CASE("the socket of a dead daemon is replaced") {
  const TempDir dir;
  const std::string path = dir.file("s");
  REQUIRE(dial(path, true).valid());  // Bound, closed, never removed.
  REQUIRE_FALSE(dial(path).valid());
  const auto listener = ListenSocket::unixSocket("unix:" + path, 0660);
  REQUIRE(listener.isOk());
  CHECK(dial(path).valid());
}

TEST_CASE("what is not a socket stays where it is") {
  const TempDir dir;
  SECTION("a directory") {
    std::filesystem::create_directory(dir.file("d"));
    const auto listener = ListenSocket::unixSocket("unix:" + dir.file("d"), 0660);
    CHECK(codeOf(listener) == Code::kAlreadyExists);
    CHECK(std::filesystem::is_directory(dir.file("d")));
  }
  SECTION("a file") {
    std::ofstream(dir.file("f")) << "kept";
    const auto listener = ListenSocket::unixSocket("unix:" + dir.file("f"), 0660);
    CHECK(codeOf(listener) == Code::kAlreadyExists);
    CHECK(std::filesystem::file_size(dir.file("f")) == 4);
  }
  SECTION("a link to a dead socket") {
    REQUIRE(dial(dir.file("s"), true).valid());
    std::filesystem::create_symlink(dir.file("s"), dir.file("l"));
    const auto listener = ListenSocket::unixSocket("unix:" + dir.file("l"), 0660);
    CHECK(codeOf(listener) == Code::kAlreadyExists);
    CHECK(std::filesystem::is_symlink(dir.file("l")));
  }
}

TEST_CASE("a successor's socket file survives the end of the first") {
  const TempDir dir;
  const std::string path = dir.file("s");
  auto first =
      std::make_unique<Result<ListenSocket>>(ListenSocket::unixSocket("unix:" + path, 0660));
  REQUIRE(first->isOk());
  REQUIRE(unlink(path.c_str()) == 0);
  const auto second = ListenSocket::unixSocket("unix:" + path, 0660);
  REQUIRE(second.isOk());
  first.reset();
  CHECK(dial(path).valid());
}

TEST_CASE("malformed and impossible Unix addresses are refused") {
  CHECK(codeOf(ListenSocket::unixSocket("", 0660)) == Code::kInvalidArgument);
  CHECK(codeOf(ListenSocket::unixSocket("/run/s", 0660)) == Code::kInvalidArgument);
  CHECK(codeOf(ListenSocket::unixSocket("unix:", 0660)) == Code::kInvalidArgument);
  CHECK(codeOf(ListenSocket::unixSocket("unix:/" + std::string(107, 'x'), 0660)) ==
        Code::kInvalidArgument);
  CHECK(codeOf(ListenSocket::unixSocket("unix:/nowhere/to/be/found", 0660)) == Code::kUnavailable);
}

TEST_CASE("an abstract name is exclusive and free again at once") {
  const std::string name = privateName("listen");
  {
    const auto first = ListenSocket::unixSocket("unix-abstract:" + name, 0660);
    REQUIRE(first.isOk());
    CHECK(codeOf(ListenSocket::unixSocket("unix-abstract:" + name, 0660)) == Code::kAlreadyExists);
    const Fd client = dial("@" + name);
    REQUIRE(client.valid());
    CHECK(first.value().accept().isOk());
  }
  CHECK(ListenSocket::unixSocket("unix-abstract:" + name, 0660).isOk());
}

// Runs where the test may change its user; elsewhere it says that it did not.
TEST_CASE("an abstract socket turns other users away") {
  const std::string name = privateName("users");
  const auto listener = ListenSocket::unixSocket("unix-abstract:" + name, 0660);
  REQUIRE(listener.isOk());
  const pid_t child = fork();
  if (child == 0) {
    if (setresuid(65534, 65534, 65534) != 0) _exit(77);
    const Fd client = dial("@" + name);
    if (!client.valid()) _exit(1);
    char byte = 0;
    _exit(read(client.get(), &byte, 1) <= 0 ? 0 : 2);  // Closed without a word.
  }
  pollfd wait{listener.value().fd(), POLLIN, 0};
  int status = 0;
  while (poll(&wait, 1, 10) == 0 && waitpid(child, &status, WNOHANG) == 0) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    WARN("skipped: this user cannot become another one");
    return;
  }
  CHECK(listener.value().accept().status().code() == Code::kPermissionDenied);
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("connections never take the upper half of the descriptors") {
  const std::string name = privateName("half");
  const auto listener = ListenSocket::unixSocket("unix-abstract:" + name, 0660);
  REQUIRE(listener.isOk());
  const Fd client = dial("@" + name);
  REQUIRE(client.valid());
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 2 * (client.get() + 1);  // The next descriptor is the first of the upper half.
  REQUIRE(setrlimit(RLIMIT_NOFILE, &small) == 0);
  const Code code = listener.value().accept().status().code();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(code == Code::kResourceExhausted);
}

TEST_CASE("TCP listens on loopback unless told otherwise") {
  SECTION("IPv4, IPv6 and localhost get a free port") {
    const std::string address =
        GENERATE(as<std::string>{}, "127.0.0.1:0", "localhost:0", "127.9.9.9:0");
    const auto listener = ListenSocket::tcp(address, false);
    REQUIRE(listener.isOk());
    CHECK(listener.value().port() != 0);
  }
  SECTION("other addresses need permission") {
    CHECK(codeOf(ListenSocket::tcp("0.0.0.0:0", false)) == Code::kPermissionDenied);
    CHECK(codeOf(ListenSocket::tcp("[::]:0", false)) == Code::kPermissionDenied);
    CHECK(ListenSocket::tcp("0.0.0.0:0", true).isOk());
  }
  SECTION("malformed ones are refused") {
    const std::string address =
        GENERATE(as<std::string>{}, "", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000",
                 "127.0.0.1:1x", "example:80", "::1:80", "[::1:80", ":80");
    CHECK(codeOf(ListenSocket::tcp(address, true)) == Code::kInvalidArgument);
  }
}

TEST_CASE("a TCP port is not shared") {
  const auto first = ListenSocket::tcp("127.0.0.1:0", false);
  REQUIRE(first.isOk());
  const std::string address = "127.0.0.1:" + std::to_string(first.value().port());
  const auto second = ListenSocket::tcp(address, false);
  CHECK(codeOf(second) == Code::kAlreadyExists);
  CHECK(second.status().message() == "status TCP address " + address + " is in use");
}
