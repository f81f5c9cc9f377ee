// SPDX-License-Identifier: Apache-2.0
#include "daemon/rpc/grpc_status.h"

#include <catch2/catch.hpp>

using rueda::rpc::fromGrpc;
using rueda::rpc::toGrpc;
using rueda::shm::Code;
using rueda::shm::Status;

TEST_CASE("ok stays ok in both directions") {
  CHECK(toGrpc(Status::ok()).ok());
  CHECK(fromGrpc(grpc::Status::OK).isOk());
}

TEST_CASE("no failure becomes a success, and its text travels") {
  const int code = GENERATE(range(1, 17));
  const grpc::Status sent = toGrpc({static_cast<Code>(code), "rank 3 on hostA"});
  CHECK_FALSE(sent.ok());
  CHECK(sent.error_message() == "rank 3 on hostA");
  const Status received = fromGrpc(sent);
  CHECK_FALSE(received.isOk());
  CHECK(received.message() == "rank 3 on hostA");
}

TEST_CASE("codes that gRPC knows come back as they were") {
  const Code code = GENERATE(Code::kInvalidArgument, Code::kAlreadyExists, Code::kMismatch,
                             Code::kRankLost, Code::kDeadlineExceeded, Code::kResourceExhausted,
                             Code::kPermissionDenied, Code::kUnavailable, Code::kProtocolError,
                             Code::kInterrupted, Code::kInternal, Code::kUnimplemented);
  CHECK(fromGrpc(toGrpc({code, "x"})).code() == code);
}

TEST_CASE("a code that gRPC reserves is an internal error") {
  CHECK(fromGrpc({grpc::StatusCode::DO_NOT_USE, "x"}).code() == Code::kInternal);
}
