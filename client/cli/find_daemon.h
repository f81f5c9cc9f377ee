// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which daemon ruedactl talks to, and the connection to it. One thread. Reads no environment and
// asks no name service; system facts come in by FindOptions, so that tests can give their own.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "shm/fd.h"
#include "shm/status.h"

namespace rueda::cli {

// Where a daemon answers operators.
struct StatusAddress {
  enum class Kind { kPath, kAbstract, kTcp };
  Kind kind = Kind::kPath;
  std::string name;  // A path, an abstract name without "@", or "host:port".

  // As people write it: "/run/rueda/status.sock", "@rueda-x.status", "127.0.0.1:7707".
  std::string toString() const { return kind == Kind::kAbstract ? "@" + name : name; }
  // For a private daemon the socket that its clients use, "@rueda-x"; else as toString().
  std::string daemonSocket() const;
  bool operator==(const StatusAddress& o) const { return kind == o.kind && name == o.name; }
};

// The status address of what a user passes as --socket: a daemon's socket ("/dir/rueda.sock" means
// "/dir/status.sock", "@rueda-x" means "@rueda-x.status"), a status socket itself, "unix:/path",
// "unix-abstract:name", or "host:port". kInvalidArgument for anything else.
shm::Result<StatusAddress> statusAddressOf(const std::string& socket);

// Names of the private daemons' status sockets that listen, without "@", sorted, each once, from
// the text of /proc/net/unix.
std::vector<std::string> privateStatusSockets(std::string_view procNetUnix);

struct FindOptions {
  std::string socket;  // --socket or RUEDA_SOCKET; empty: look for one.
  std::string systemSocket = "/run/rueda/status.sock";
  std::string procNetUnix = "/proc/net/unix";
  // Whether this user may use the private daemon at this abstract name.
  std::function<bool(const std::string&)> usable;
};

// FindOptions for this machine.
FindOptions systemFindOptions(const std::string& socket);

// The address given, else the system daemon's if it is there, else every private daemon that is
// usable. kUnavailable: none runs; kInvalidArgument: --socket is malformed.
shm::Result<std::vector<StatusAddress>> findDaemons(const FindOptions& options);

// Why one of these must be chosen; names them.
shm::Status severalRun(const std::vector<StatusAddress>& addresses);

// Connects to a Unix status socket; non-blocking afterwards. kUnavailable with the system's reason.
// REQUIRES: not kTcp.
shm::Result<shm::Fd> connectStatus(const StatusAddress& address);

}  // namespace rueda::cli
