// SPDX-License-Identifier: Apache-2.0
#include "shm/status.h"

#include <cstring>

namespace rueda::shm {

const char* codeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kAlreadyExists:
      return "already exists";
    case Code::kMismatch:
      return "mismatch";
    case Code::kRankLost:
      return "rank lost";
    case Code::kShutDown:
      return "shut down";
    case Code::kDaemonLost:
      return "daemon lost";
    case Code::kNotInitialized:
      return "not initialized";
    case Code::kDeadlineExceeded:
      return "deadline exceeded";
    case Code::kResourceExhausted:
      return "resource exhausted";
    case Code::kPermissionDenied:
      return "permission denied";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kProtocolError:
      return "protocol error";
    case Code::kInterrupted:
      return "interrupted";
    case Code::kInternal:
      return "internal error";
    case Code::kUnimplemented:
      return "unimplemented";
    case Code::kStalled:
      return "stalled";
  }
  return "unknown code";
}

Status::Status(Code code, std::string message) {
  if (code != Code::kOk)
    failure_ = std::make_shared<const Failure>(Failure{code, std::move(message)});
}

const std::string& Status::message() const {
  static const std::string kNone;
  return isOk() ? kNone : failure_->message;
}

Status Status::fromErrno(Code code, const std::string& what, int error) {
  char buffer[128];
  return {code, what + ": " + strerror_r(error, buffer, sizeof buffer)};
}

std::string Status::toString() const {
  return message().empty() ? codeName(code()) : std::string(codeName(code())) + ": " + message();
}

}  // namespace rueda::shm
