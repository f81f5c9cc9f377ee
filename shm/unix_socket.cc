// SPDX-License-Identifier: Apache-2.0
#include "shm/unix_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rueda::shm {
namespace {

constexpr int kPassRights = 83;  // SO_PASSRIGHTS, Linux 6.16; absent in older headers.

struct Address {
  sockaddr_un raw{};
  socklen_t bytes = 0;
};

Result<Address> parseAddress(const std::string& text) {
  Address address;
  address.raw.sun_family = AF_UNIX;
  if (text.empty() || text.size() >= sizeof address.raw.sun_path)
    return Status(Code::kInvalidArgument, "socket address '" + text + "' must have 1 to 107 bytes");
  std::memcpy(address.raw.sun_path, text.data(), text.size());
  address.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  if (text[0] == '@')
    address.raw.sun_path[0] = '\0';
  else
    address.bytes += 1;
  return address;
}

const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.raw);
}

const char* adviceFor(int error) {
  switch (error) {
    case ENOENT:
      return "; is the rueda service running? (systemctl status ruedad)";
    case ECONNREFUSED:
      return "; nothing listens there, the daemon has ended";
    case EACCES:
      return "; your user may not use this daemon";
    default:
      return "";
  }
}

// True if the kernel says that nobody listens there. Any other failure may come from a living
// socket: of another type, with a full backlog, of another user.
bool isDead(const Address& address) {
  const Fd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(probe.get(), generic(address), address.bytes) != 0 && errno == ECONNREFUSED;
}

// Removes what a dead daemon left at a path; refuses to touch anything that is not a stale socket.
Status clearStalePath(const std::string& path, const Address& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return Status::ok();
  if (S_ISDIR(info.st_mode)) {
    if (::rmdir(path.c_str()) == 0) return Status::ok();  // A container run-time made it.
    return {Code::kInvalidArgument, path + " is a directory that is not empty"};
  }
  if (!S_ISSOCK(info.st_mode)) return {Code::kInvalidArgument, path + " exists and is no socket"};
  if (!isDead(address)) return {Code::kAlreadyExists, "another daemon listens on " + path};
  if (::unlink(path.c_str()) != 0)
    return Status::fromErrno(Code::kPermissionDenied, "removing the stale socket " + path, errno);
  return Status::ok();
}

void collectFds(const msghdr& header, Packet* packet) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&header), c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      packet->fds.emplace_back(fd);
    }
  }
}

}  // namespace

MessageType Packet::type() const {
  MessageHeader header{};
  if (bytes >= sizeof header) std::memcpy(&header, data.data(), sizeof header);
  return static_cast<MessageType>(header.type);
}

Result<Fd> connectUnix(const std::string& address) {
  RUEDA_ASSIGN_OR_RETURN(const Address parsed, parseAddress(address));
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Status::fromErrno(Code::kResourceExhausted, "socket", errno);
  if (::connect(fd.get(), generic(parsed), parsed.bytes) != 0) {
    const int error = errno;
    Status status =
        Status::fromErrno(Code::kUnavailable, "cannot reach ruedad at " + address, error);
    return Status(status.code(), status.message() + adviceFor(error));
  }
  return fd;
}

Result<Fd> listenUnix(const std::string& address, mode_t mode, bool takesDescriptors) {
  RUEDA_ASSIGN_OR_RETURN(const Address parsed, parseAddress(address));
  const bool isPath = address[0] != '@';
  if (isPath) RUEDA_RETURN_IF_ERROR(clearStalePath(address, parsed));
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Status::fromErrno(Code::kResourceExhausted, "socket", errno);
  if (::bind(fd.get(), generic(parsed), parsed.bytes) != 0) {
    const Code code = errno == EADDRINUSE ? Code::kAlreadyExists : Code::kInvalidArgument;
    if (code == Code::kAlreadyExists) return Status(code, "another daemon listens on " + address);
    return Status::fromErrno(code, "binding " + address, errno);
  }
  if (isPath && ::chmod(address.c_str(), mode) != 0)
    return Status::fromErrno(Code::kPermissionDenied, "setting the mode of " + address, errno);
  if (!takesDescriptors) (void)refuseDescriptors(fd.get());  // Before anybody can connect.
  if (::listen(fd.get(), 512) != 0)
    return Status::fromErrno(Code::kInternal, "listening on " + address, errno);
  return fd;
}

bool refuseDescriptors(int socket) {
  const int none = 0;
  return ::setsockopt(socket, SOL_SOCKET, kPassRights, &none, sizeof none) == 0;
}

Result<Fd> acceptUnix(int listener) {
  Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) {
    const Code code =
        errno == EMFILE || errno == ENFILE ? Code::kResourceExhausted : Code::kUnavailable;
    return Status::fromErrno(code, "accept", errno);
  }
  return fd;
}

Result<PeerCredentials> peerCredentials(int socket) {
  ucred raw{};
  socklen_t bytes = sizeof raw;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &raw, &bytes) != 0)
    return Status::fromErrno(Code::kPermissionDenied, "SO_PEERCRED", errno);
  return PeerCredentials{raw.pid, raw.uid, raw.gid};
}

Status sendPacket(int socket, const void* data, size_t bytes, const int* fds, size_t fdCount) {
  RUEDA_CHECK(fdCount <= kMaxFdsPerMessage);
  iovec part{const_cast<void*>(data), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFdsPerMessage * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fdCount > 0) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(fdCount * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fdCount * sizeof(int));
    std::memcpy(CMSG_DATA(c), fds, fdCount * sizeof(int));
  }
  ssize_t sent = -1;
  do sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes)) return Status::ok();
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ETOOMANYREFS || errno == ENOBUFS)
    return {Code::kUnavailable, "socket is full"};
  return Status::fromErrno(Code::kDaemonLost, "send", errno);
}

Result<ReceiveState> receivePacket(int socket, bool block, Packet* packet) {
  iovec part{packet->data.data(), packet->data.size()};
  // Room for more descriptors than are allowed, so that a flood is seen and closed, not cut.
  alignas(cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))];
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  packet->fds.clear();
  const int flags = MSG_CMSG_CLOEXEC | (block ? 0 : MSG_DONTWAIT);
  ssize_t got = ::recvmsg(socket, &header, flags);
  // A peer that closed with unread packets of ours: the kernel says so once, before what the peer
  // sent last (a goodbye, a reason), which is still to be read.
  if (got < 0 && errno == ECONNRESET) got = ::recvmsg(socket, &header, flags);
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return ReceiveState::kWouldBlock;
    return ReceiveState::kClosed;
  }
  packet->bytes = static_cast<size_t>(got);
  collectFds(header, packet);  // Of an empty message too: they are open by now.
  if (got == 0) return ReceiveState::kClosed;
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
    return Status(Code::kProtocolError, "message or its descriptors were cut");
  if (packet->fds.size() > kMaxFdsPerMessage)
    return Status(Code::kProtocolError,
                  std::to_string(packet->fds.size()) + " descriptors in one message");
  MessageHeader parsed{};
  if (packet->bytes >= sizeof parsed) std::memcpy(&parsed, packet->data.data(), sizeof parsed);
  if (parsed.magic != kMessageMagic || parsed.bytes != packet->bytes)
    return Status(Code::kProtocolError,
                  "message of " + std::to_string(packet->bytes) + " bytes has a wrong header");
  return ReceiveState::kPacket;
}

void copyText(char* field, size_t fieldBytes, const std::string& text) {
  const size_t length = std::min(text.size(), fieldBytes - 1);
  std::memcpy(field, text.data(), length);
  field[length] = '\0';
}

std::string fieldText(const char* field, size_t fieldBytes) {
  return std::string(field, ::strnlen(field, fieldBytes));
}

}  // namespace rueda::shm
