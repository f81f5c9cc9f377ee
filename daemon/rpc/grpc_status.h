// SPDX-License-Identifier: Apache-2.0
#pragma once

// Status <-> gRPC status. gRPC has fewer codes than rueda, so several of ours share one of theirs;
// the text travels unchanged and is what people read. Pure; any thread.

#include <grpcpp/support/status.h>

#include "shm/status.h"

namespace rueda::rpc {

grpc::Status toGrpc(const shm::Status& status);

// The nearest rueda code. A code outside gRPC's list (a newer peer) becomes kInternal.
shm::Status fromGrpc(const grpc::Status& status);

}  // namespace rueda::rpc
