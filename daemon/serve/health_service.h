// SPDX-License-Identifier: Apache-2.0
#pragma once

// The standard gRPC health service, answered from a snapshot made at the question, so that a stuck
// engine is reported as such and never as what it was a while ago. Watch asks again every
// `watchInterval` while somebody watches. It decides nothing: parts and reasons are the engine's.

#include <chrono>
#include <memory>
#include <string>

#include "daemon/serve/snapshot_feed.h"

namespace grpc {
class Service;
}

namespace rueda::serve {

enum class Health { kUnknown, kServing, kNotServing, kNoSuchService };

// The state of "" or "rueda.v1.Status" (the worst part), or of one part, as a snapshot tells it.
// Without a snapshot the engine is not serving and the other parts are unknown.
Health healthOf(const SnapshotFeed::Snapshot& snapshot, const std::string& service);

// Borrows the feed, which must outlive the service's last call.
std::unique_ptr<grpc::Service> makeHealthService(SnapshotFeed& feed,
                                                 std::chrono::milliseconds watchInterval);

}  // namespace rueda::serve
