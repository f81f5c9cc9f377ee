// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/grpc_status.h"

namespace rueda::rpc {
namespace {

using shm::Code;

grpc::StatusCode toGrpcCode(Code code) {
  switch (code) {
    case Code::kOk:
      return grpc::StatusCode::OK;
    case Code::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case Code::kAlreadyExists:
      return grpc::StatusCode::ALREADY_EXISTS;
    case Code::kMismatch:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case Code::kRankLost:
      return grpc::StatusCode::ABORTED;
    case Code::kShutDown:
      return grpc::StatusCode::UNAVAILABLE;
    case Code::kDaemonLost:
      return grpc::StatusCode::UNAVAILABLE;
    case Code::kNotInitialized:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case Code::kDeadlineExceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case Code::kResourceExhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case Code::kPermissionDenied:
      return grpc::StatusCode::PERMISSION_DENIED;
    case Code::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case Code::kProtocolError:
      return grpc::StatusCode::DATA_LOSS;
    case Code::kInterrupted:
      return grpc::StatusCode::CANCELLED;
    case Code::kInternal:
      return grpc::StatusCode::INTERNAL;
    case Code::kUnimplemented:
      return grpc::StatusCode::UNIMPLEMENTED;
    case Code::kStalled:
      return grpc::StatusCode::ABORTED;
  }
  return grpc::StatusCode::INTERNAL;
}

Code fromGrpcCode(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return Code::kOk;
    case grpc::StatusCode::CANCELLED:
      return Code::kInterrupted;
    case grpc::StatusCode::UNKNOWN:
      return Code::kInternal;
    case grpc::StatusCode::INVALID_ARGUMENT:
      return Code::kInvalidArgument;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return Code::kDeadlineExceeded;
    case grpc::StatusCode::NOT_FOUND:
      return Code::kInvalidArgument;
    case grpc::StatusCode::ALREADY_EXISTS:
      return Code::kAlreadyExists;
    case grpc::StatusCode::PERMISSION_DENIED:
      return Code::kPermissionDenied;
    case grpc::StatusCode::UNAUTHENTICATED:
      return Code::kPermissionDenied;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Code::kResourceExhausted;
    case grpc::StatusCode::FAILED_PRECONDITION:
      return Code::kMismatch;
    case grpc::StatusCode::ABORTED:
      return Code::kRankLost;
    case grpc::StatusCode::OUT_OF_RANGE:
      return Code::kInvalidArgument;
    case grpc::StatusCode::UNIMPLEMENTED:
      return Code::kUnimplemented;
    case grpc::StatusCode::INTERNAL:
      return Code::kInternal;
    case grpc::StatusCode::UNAVAILABLE:
      return Code::kUnavailable;
    case grpc::StatusCode::DATA_LOSS:
      return Code::kProtocolError;
    case grpc::StatusCode::DO_NOT_USE:
      break;
  }
  return Code::kInternal;
}

}  // namespace

grpc::Status toGrpc(const shm::Status& status) {
  if (status.isOk()) return grpc::Status::OK;
  return {toGrpcCode(status.code()), status.message()};
}

shm::Status fromGrpc(const grpc::Status& status) {
  if (status.ok()) return shm::Status::ok();
  return {fromGrpcCode(status.error_code()), status.error_message()};
}

}  // namespace rueda::rpc
