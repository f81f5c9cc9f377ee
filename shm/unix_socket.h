// SPDX-License-Identifier: Apache-2.0
#pragma once

// SOCK_SEQPACKET Unix sockets that carry one message and its descriptors per packet. An address is
// a file system path, or "@name" for an abstract socket, which leaves nothing behind. Any thread.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "shm/fd.h"
#include "shm/handshake.h"
#include "shm/status.h"

namespace rueda::shm {

constexpr size_t kMaxFdsPerMessage = 4;

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

// A received packet. `fds` are close-on-exec and owned.
struct Packet {
  std::array<char, kMaxMessageBytes> data;
  size_t bytes = 0;
  std::vector<Fd> fds;

  MessageType type() const;
  // The packet as a T, or nullptr if magic, type or size do not fit.
  template <typename T>
  const T* as(MessageType type) const {
    if (bytes != sizeof(T) || this->type() != type) return nullptr;
    return reinterpret_cast<const T*>(data.data());
  }
};

enum class ReceiveState { kPacket, kWouldBlock, kClosed };

// Connects (blocking) to `address`. kUnavailable with the reason and what to do about it.
Result<Fd> connectUnix(const std::string& address);
// A non-blocking listener. `mode` is set on a path. Messages with descriptors are refused, where
// the kernel can. kAlreadyExists if somebody listens there.
Result<Fd> listenUnix(const std::string& address, mode_t mode, bool takesDescriptors = false);
// Makes the kernel refuse messages with descriptors to `socket`, or to those that a listener will
// accept. No client has a reason to send one, and closing it can block for as long as its sender
// likes. False before Linux 6.16, which delivers them.
bool refuseDescriptors(int socket);
// A non-blocking, close-on-exec connection, or kUnavailable when none waits.
Result<Fd> acceptUnix(int listener);

Result<PeerCredentials> peerCredentials(int socket);

// Sends one packet with descriptors. kUnavailable: would block (try later); kDaemonLost: closed.
Status sendPacket(int socket, const void* data, size_t bytes, const int* fds, size_t fdCount);

template <typename T>
Status sendMessage(int socket, const T& message) {
  return sendPacket(socket, &message, sizeof message, nullptr, 0);
}

// Receives one packet. `block` waits for it. kProtocolError: oversized, truncated, more descriptors
// than kMaxFdsPerMessage (all are closed), or wrong magic.
Result<ReceiveState> receivePacket(int socket, bool block, Packet* packet);

// Copies text into a fixed field, cut to fit, always NUL-terminated.
void copyText(char* field, size_t fieldBytes, const std::string& text);
// The text of a field from a peer, up to its NUL or its end.
std::string fieldText(const char* field, size_t fieldBytes);

}  // namespace rueda::shm
