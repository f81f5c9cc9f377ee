// SPDX-License-Identifier: Apache-2.0
#pragma once

// rueda.v1.Status over snapshots: the one place where the engine's view becomes messages. Answers
// on the feed's thread; the only thing it takes from a caller is a job id, compared and never
// stored.

#include <memory>

#include "daemon/serve/snapshot_feed.h"

namespace grpc {
class Service;
}

namespace rueda::serve {

// Borrows the feed, which must outlive the service's last call.
std::unique_ptr<grpc::Service> makeStatusService(SnapshotFeed& feed);

}  // namespace rueda::serve
