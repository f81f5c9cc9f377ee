// SPDX-License-Identifier: Apache-2.0
#pragma once

// Expected failures as values: a code, a text with the object's name and numbers, and Result<T>.
// Any thread. Free of third-party code, since this is linked into training processes.

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "shm/check.h"

namespace rueda::shm {

// Wire values: they travel in completion entries and across the C ABI; never renumber.
enum class Code : int32_t {
  kOk = 0,
  kInvalidArgument = 1,    // The caller's own argument is wrong; nothing was submitted.
  kAlreadyExists = 2,      // The name is still in flight in this process.
  kMismatch = 3,           // Ranks disagree on dtype, shape, op, root or scale.
  kRankLost = 4,           // A rank of the job died or left without a goodbye.
  kShutDown = 5,           // A rank shut the job down while operations were pending.
  kDaemonLost = 6,         // The connection to the daemon is gone.
  kNotInitialized = 7,     // No session, or it was closed.
  kDeadlineExceeded = 8,   // A wait passed its deadline.
  kResourceExhausted = 9,  // A quota, a table or memory is full.
  kPermissionDenied = 10,  // The kernel's credentials do not allow this.
  kUnavailable = 11,       // Cannot reach the daemon, or it is draining.
  kProtocolError = 12,     // The peer sent bytes that break the contract.
  kInterrupted = 13,       // A signal handler asked to stop waiting.
  kInternal = 14,          // A bug in rueda; please report.
  kUnimplemented = 15,     // Not offered for this dtype, op or placement.
  kStalled = 16,           // The operation waited longer than the job's stall limit.
};

// The lower-case text of a code, for logs and errors ("rank lost").
const char* codeName(Code code);

// Copies share the failure, which is never changed: the client keeps the reason of its end for all
// threads. Success is a null pointer: an operation of two ranks on 4 bytes returns through half a
// dozen functions in 0.2 us.
class [[nodiscard]] Status {
 public:
  Status() = default;
  // kOk gives an ok status without the text.
  Status(Code code, std::string message);

  static Status ok() { return {}; }
  // From errno: "<what>: <strerror>".
  static Status fromErrno(Code code, const std::string& what, int error);

  bool isOk() const { return failure_ == nullptr; }
  Code code() const { return isOk() ? Code::kOk : failure_->code; }
  // Empty if ok. Lives as long as this or a copy of it.
  const std::string& message() const;
  // "rank lost: rank 1 …", for logs.
  std::string toString() const;

 private:
  struct Failure {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Failure> failure_;
};

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}        // NOLINT(google-explicit-constructor)
  Result(Status status) : state_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    RUEDA_CHECK(!std::get<Status>(state_).isOk());
  }

  bool isOk() const { return std::holds_alternative<T>(state_); }
  Status status() const { return isOk() ? Status::ok() : std::get<Status>(state_); }
  // REQUIRES: isOk().
  T& value() & {
    RUEDA_CHECK(isOk());
    return std::get<T>(state_);
  }
  const T& value() const& {
    RUEDA_CHECK(isOk());
    return std::get<T>(state_);
  }
  T&& value() && {
    RUEDA_CHECK(isOk());
    return std::move(std::get<T>(state_));
  }

 private:
  std::variant<T, Status> state_;
};

}  // namespace rueda::shm

// Leaves the function with the status if it is an error.
#define RUEDA_RETURN_IF_ERROR(expr)                                                            \
  do {                                                                                         \
    if (::rueda::shm::Status rueda_status = (expr); !rueda_status.isOk()) return rueda_status; \
  } while (false)

#define RUEDA_CONCAT_INNER(a, b) a##b
#define RUEDA_CONCAT(a, b) RUEDA_CONCAT_INNER(a, b)
// RUEDA_ASSIGN_OR_RETURN(auto x, f()): x = the value, or leaves with the status.
#define RUEDA_ASSIGN_OR_RETURN(lhs, expr)                  \
  auto RUEDA_CONCAT(rueda_result_, __LINE__) = (expr);     \
  if (!RUEDA_CONCAT(rueda_result_, __LINE__).isOk())       \
    return RUEDA_CONCAT(rueda_result_, __LINE__).status(); \
  lhs = std::move(RUEDA_CONCAT(rueda_result_, __LINE__)).value()
