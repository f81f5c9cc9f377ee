// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/listen_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "shm/unix_socket.h"

namespace rueda::serve {
namespace {

using shm::Code;
using shm::Fd;
using shm::Result;
using shm::Status;

// A Unix socket refuses a non-blocking connect at once when the queue is full, so a burst of
// clients has to fit. The kernel cuts this to net.core.somaxconn.
constexpr int kBacklog = 4096;

constexpr std::string_view kPathPrefix = "unix:";
constexpr std::string_view kAbstractPrefix = "unix-abstract:";

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

bool startsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// An abstract name starts with a zero byte and has no terminator; a path ends with one.
Result<Address> unixAddress(const std::string& name, bool abstract) {
  Address address;
  auto& un = reinterpret_cast<sockaddr_un&>(address.storage);
  un.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof un.sun_path) {
    return Status(Code::kInvalidArgument, "status socket \"" + name + "\": 1 to " +
                                              std::to_string(sizeof un.sun_path - 1) +
                                              " bytes are possible");
  }
  std::memcpy(un.sun_path + (abstract ? 1 : 0), name.data(), name.size());
  address.bytes = offsetof(sockaddr_un, sun_path) + name.size() + 1;
  return address;
}

// Removes the socket file of a daemon that is gone; leaves everything else alone.
Status clearPath(const std::string& path, const Address& address) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return Status::ok();
    return Status::fromErrno(Code::kUnavailable, "status socket " + path, errno);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return {Code::kAlreadyExists, "status socket " + path + ": there is a " +
                                      (S_ISDIR(info.st_mode) ? "directory" : "file") +
                                      " in its place, which is not replaced"};
  }
  const Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe.valid()) return Status::fromErrno(Code::kUnavailable, "socket", errno);
  if (connect(probe.get(), address.get(), address.bytes) == 0 || errno != ECONNREFUSED) {
    return {Code::kAlreadyExists, "status socket " + path + ": another process listens there"};
  }
  if (info.st_uid != geteuid()) {
    return {Code::kPermissionDenied, "status socket " + path + ": a dead socket of uid " +
                                         std::to_string(info.st_uid) +
                                         " is in its place; remove it"};
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Status::fromErrno(Code::kUnavailable, "cannot remove dead socket " + path, errno);
  }
  return Status::ok();
}

Status bindAndListen(const Fd& fd, const Address& address, const std::string& what) {
  if (bind(fd.get(), address.get(), address.bytes) != 0 || listen(fd.get(), kBacklog) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) return {Code::kAlreadyExists, what + " is in use"};
    const Code code = error == EACCES ? Code::kPermissionDenied : Code::kUnavailable;
    return Status::fromErrno(code, "cannot listen at " + what, error);
  }
  return Status::ok();
}

// "host:port" with a numeric host or "localhost"; no name service is asked at start.
std::optional<Address> tcpAddress(const std::string& text, bool* loopback) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  const char* const end = text.data() + text.size();
  uint16_t port = 0;
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;

  Address address;
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    address.bytes = sizeof in6;
    if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &in6.sin6_addr) != 1) {
      return std::nullopt;
    }
    *loopback = IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
    return address;
  }
  auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  address.bytes = sizeof in;
  if (inet_pton(AF_INET, host.c_str(), &in.sin_addr) != 1) return std::nullopt;
  *loopback = (ntohl(in.sin_addr.s_addr) >> 24) == 127;
  return address;
}

// The kernel hands out the lowest free number, so a number in the upper half means that half of all
// descriptors are in use.
bool inReservedHalf(int fd) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  return static_cast<rlim_t>(fd) >= limit.rlim_cur / 2;
}

// The daemon's own user and root.
bool ownUser(int fd) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

}  // namespace

Result<ListenSocket> ListenSocket::unixSocket(const std::string& text, mode_t mode) {
  const bool abstract = startsWith(text, kAbstractPrefix);
  if (!abstract && !startsWith(text, kPathPrefix)) {
    return Status(Code::kInvalidArgument,
                  "status address \"" + text + "\": expected unix:/path or unix-abstract:name");
  }
  const std::string name = text.substr(abstract ? kAbstractPrefix.size() : kPathPrefix.size());
  RUEDA_ASSIGN_OR_RETURN(const Address address, unixAddress(name, abstract));
  ListenSocket made{Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  if (!made.fd_.valid()) return Status::fromErrno(Code::kUnavailable, "socket", errno);
  made.ownUserOnly_ = abstract;
  shm::refuseDescriptors(made.fd_.get());  // Elsewhere they can hold up the status, nothing more.
  if (abstract) {
    RUEDA_RETURN_IF_ERROR(bindAndListen(made.fd_, address, "status socket @" + name));
    return made;
  }
  RUEDA_RETURN_IF_ERROR(clearPath(name, address));
  // The file gets the mode of the descriptor less the umask, so it is never open wider than asked;
  // the chmod afterwards adds what the umask took.
  if (fchmod(made.fd_.get(), mode) != 0) {
    return Status::fromErrno(Code::kUnavailable, "fchmod of status socket", errno);
  }
  RUEDA_RETURN_IF_ERROR(bindAndListen(made.fd_, address, "status socket " + name));
  struct stat info {};
  if (chmod(name.c_str(), mode) != 0 || lstat(name.c_str(), &info) != 0) {
    return Status::fromErrno(Code::kUnavailable, "mode of status socket " + name, errno);
  }
  made.path_ = name;
  made.device_ = info.st_dev;
  made.inode_ = info.st_ino;
  return made;
}

Result<ListenSocket> ListenSocket::tcp(const std::string& text, bool allowRemote) {
  bool loopback = false;
  const std::optional<Address> address = tcpAddress(text, &loopback);
  if (!address) {
    return Status(Code::kInvalidArgument,
                  "status TCP address \"" + text + "\": expected a numeric host:port");
  }
  if (!loopback && !allowRemote) {
    return Status(Code::kPermissionDenied,
                  "status TCP address " + text +
                      " is not a loopback address; its traffic would be open to the network");
  }
  ListenSocket made{
      Fd(socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0))};
  if (!made.fd_.valid()) return Status::fromErrno(Code::kUnavailable, "socket", errno);
  // Rebinding right after a restart; unlike SO_REUSEPORT it never shares a port with a listener.
  const int on = 1;
  setsockopt(made.fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  RUEDA_RETURN_IF_ERROR(bindAndListen(made.fd_, *address, "status TCP address " + text));
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  if (getsockname(made.fd_.get(), reinterpret_cast<sockaddr*>(&bound), &bytes) != 0) {
    return Status::fromErrno(Code::kUnavailable, "getsockname", errno);
  }
  // Both families keep the port at the same place.
  made.port_ = ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
  return made;
}

ListenSocket::~ListenSocket() {
  if (!fd_.valid() || path_.empty()) return;
  struct stat info {};
  if (lstat(path_.c_str(), &info) == 0 && info.st_dev == device_ && info.st_ino == inode_) {
    unlink(path_.c_str());
  }
}

Result<Fd> ListenSocket::accept() const {
  Fd fd(accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    return Status::fromErrno(full ? Code::kResourceExhausted : Code::kUnavailable, "accept", errno);
  }
  if (ownUserOnly_ && !ownUser(fd.get())) {
    return Status(Code::kPermissionDenied, "a connection of another user");
  }
  if (inReservedHalf(fd.get())) {
    return Status(Code::kResourceExhausted, "half of the descriptors are in use");
  }
  if (port_ != 0) {
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  return fd;
}

}  // namespace rueda::serve
