// SPDX-License-Identifier: Apache-2.0
#include "client/cli/find_daemon.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace rueda::cli {
namespace {

using shm::Code;
using shm::Fd;
using shm::Result;
using shm::Status;
using Kind = StatusAddress::Kind;

constexpr std::string_view kStatusSuffix = ".status";
constexpr std::string_view kPrivatePrefix = "rueda-";
constexpr std::string_view kStatusFile = "status.sock";
// Daemons named in one error line.
constexpr size_t kMaxListed = 10;

bool startsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool endsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

// "host:port" with digits after the last colon.
bool looksLikeTcp(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) return false;
  return std::all_of(text.begin() + static_cast<ptrdiff_t>(colon) + 1, text.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

// The uid that listens at an abstract name may be anybody's: names are free for all to take.
bool listenerIsMine(const std::string& name) {
  const Result<Fd> fd = connectStatus({Kind::kAbstract, name});
  if (!fd.isOk()) return false;
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (getsockopt(fd.value().get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
  return peer.uid == geteuid() || geteuid() == 0;
}

// The fields of a line: Num RefCount Protocol Flags Type St Inode Path.
bool isListening(const std::string& flags) {
  constexpr unsigned long kAcceptsConnections = 0x10000;  // __SO_ACCEPTCON of the kernel.
  return (std::strtoul(flags.c_str(), nullptr, 16) & kAcceptsConnections) != 0;
}

Status noneRuns(const FindOptions& options) {
  return {Code::kUnavailable, "no ruedad found: " + options.systemSocket +
                                  " does not exist and no private daemon of yours runs"};
}

}  // namespace

std::string StatusAddress::daemonSocket() const {
  if (kind != Kind::kAbstract || !endsWith(name, kStatusSuffix)) return toString();
  return "@" + name.substr(0, name.size() - kStatusSuffix.size());
}

Result<StatusAddress> statusAddressOf(const std::string& socket) {
  if (startsWith(socket, "unix:") && socket.size() > 5) {
    return StatusAddress{Kind::kPath, socket.substr(5)};
  }
  if (startsWith(socket, "unix-abstract:") && socket.size() > 14) {
    return StatusAddress{Kind::kAbstract, socket.substr(14)};
  }
  if (socket.size() > 1 && socket[0] == '@') {
    std::string name = socket.substr(1);
    if (!endsWith(name, kStatusSuffix)) name += kStatusSuffix;
    return StatusAddress{Kind::kAbstract, name};
  }
  const size_t slash = socket.rfind('/');
  if (slash != std::string::npos) {
    return StatusAddress{Kind::kPath, socket.substr(0, slash + 1).append(kStatusFile)};
  }
  if (looksLikeTcp(socket)) return StatusAddress{Kind::kTcp, socket};
  return Status(Code::kInvalidArgument,
                "--socket \"" + socket + "\": expected a path, @name or host:port");
}

std::vector<std::string> privateStatusSockets(std::string_view procNetUnix) {
  std::vector<std::string> names;
  std::istringstream lines{std::string(procNetUnix)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number, references, protocol, flags, type, state, inode, path;
    fields >> number >> references >> protocol >> flags >> type >> state >> inode >> path;
    if (path.empty() || path[0] != '@' || !isListening(flags)) continue;
    const std::string name = path.substr(1);
    if (startsWith(name, kPrivatePrefix) && endsWith(name, kStatusSuffix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

FindOptions systemFindOptions(const std::string& socket) {
  FindOptions options;
  options.socket = socket;
  options.usable = listenerIsMine;
  return options;
}

Result<std::vector<StatusAddress>> findDaemons(const FindOptions& options) {
  if (!options.socket.empty()) {
    RUEDA_ASSIGN_OR_RETURN(StatusAddress given, statusAddressOf(options.socket));
    return std::vector<StatusAddress>{std::move(given)};
  }
  if (access(options.systemSocket.c_str(), F_OK) == 0) {
    return std::vector<StatusAddress>{{Kind::kPath, options.systemSocket}};
  }
  std::ifstream file(options.procNetUnix);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<StatusAddress> found;
  for (const std::string& name : privateStatusSockets(text)) {
    if (options.usable(name)) found.push_back({Kind::kAbstract, name});
  }
  if (found.empty()) return noneRuns(options);
  return found;
}

Status severalRun(const std::vector<StatusAddress>& addresses) {
  std::string list;
  for (size_t i = 0; i < addresses.size() && i < kMaxListed; ++i) {
    list += (i == 0 ? "" : ", ") + addresses[i].daemonSocket();
  }
  if (addresses.size() > kMaxListed) {
    list += " and " + std::to_string(addresses.size() - kMaxListed) + " more";
  }
  return {Code::kInvalidArgument, std::to_string(addresses.size()) +
                                      " private daemons run; choose one with --socket: " + list};
}

Result<Fd> connectStatus(const StatusAddress& address) {
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  if (address.name.size() + 1 > sizeof un.sun_path) {
    return Status(Code::kInvalidArgument,
                  "the name is longer than " + std::to_string(sizeof un.sun_path - 1) + " bytes");
  }
  const bool abstract = address.kind == Kind::kAbstract;
  std::memcpy(un.sun_path + (abstract ? 1 : 0), address.name.data(), address.name.size());
  const socklen_t bytes = offsetof(sockaddr_un, sun_path) + address.name.size() + 1;
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || connect(fd.get(), reinterpret_cast<const sockaddr*>(&un), bytes) != 0) {
    const int error = errno;
    char text[128];
    return Status(Code::kUnavailable, strerror_r(error, text, sizeof text));
  }
  return fd;
}

}  // namespace rueda::cli
