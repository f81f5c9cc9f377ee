// SPDX-License-Identifier: Apache-2.0
#pragma once

// A listening stream socket for operators, made by us and not by gRPC: gRPC would replace the
// socket of a daemon that still runs, share a TCP port with it, and set no mode. One owner; any
// thread.

#include <sys/types.h>

#include <string>

#include "shm/fd.h"
#include "shm/status.h"

namespace rueda::serve {

class ListenSocket {
 public:
  // Listens at "unix:/path" with the given mode, or at "unix-abstract:name", where there is no mode
  // and accept() lets in only the daemon's own user and root instead.
  // The socket file of a dead daemon is replaced if it belongs to the same user.
  // REQUIRES: no second daemon starts on the same path at this moment.
  // Errors: kAlreadyExists somebody listens there, or something other than a socket is there;
  // kPermissionDenied a dead socket of another user; kInvalidArgument malformed or too long;
  // kUnavailable the system's reason.
  static shm::Result<ListenSocket> unixSocket(const std::string& address, mode_t mode);

  // Listens at "127.0.0.1:7707", "[::1]:7707" or "localhost:7707"; port 0: any free one. Traffic is
  // neither encrypted nor authenticated, so other than loopback addresses need `allowRemote`.
  // Errors: kAlreadyExists, kInvalidArgument, kPermissionDenied, kUnavailable.
  static shm::Result<ListenSocket> tcp(const std::string& address, bool allowRemote);

  ListenSocket(ListenSocket&&) = default;
  ListenSocket& operator=(ListenSocket&&) = delete;
  // Closes, and removes the socket file if it is still this one.
  ~ListenSocket();

  int fd() const { return fd_.get(); }
  int port() const { return port_; }  // 0 for Unix sockets.

  // A non-blocking connection of a peer that is allowed in. kUnavailable: none waits;
  // kPermissionDenied: one was turned away; kResourceExhausted: out of descriptors, or the
  // connection would use the half of them that is kept for training processes.
  shm::Result<shm::Fd> accept() const;

 private:
  explicit ListenSocket(shm::Fd fd) : fd_(std::move(fd)) {}

  shm::Fd fd_;
  int port_ = 0;
  bool ownUserOnly_ = false;
  std::string path_;  // Empty unless a socket file has to be removed.
  dev_t device_ = 0;  // Identity of that file.
  ino_t inode_ = 0;
};

}  // namespace rueda::serve
