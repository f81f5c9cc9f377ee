// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/client.h"

#include <utility>

#include "client/cpp/alone.h"

namespace rueda::client {

using shm::Code;
using shm::OpKind;
using shm::Result;
using shm::Status;

namespace {

Status checkTimeline(const Options& options) {
  if (!options.timeline.empty()) return Status::ok();
  return {
      Code::kInvalidArgument,
      "the timeline is not enabled: HOROVOD_TIMELINE or RUEDA_TIMELINE must be a path or DYNAMIC "
      "when the session opens"};
}

}  // namespace

Result<std::unique_ptr<Client>> Client::open(const Options& options) {
  RUEDA_ASSIGN_OR_RETURN(auto connection, Connection::open(options));
  std::unique_ptr<Client> client(new Client(options, std::move(connection)));
  if (options.timeline.empty() || options.timeline == "DYNAMIC") return client;
  const Status started = client->startTimeline(options.timeline, options.marksCycles);
  if (!started.isOk()) logTimeline(started.message() + "; the job runs without one");
  return client;
}

Client::Client(const Options& options, std::unique_ptr<Connection> connection)
    : options_(options),
      connection_(std::move(connection)),
      memory_(*connection_),
      patience_(*connection_, options.interrupted),
      sets_(options.rank, options.size),
      timer_(*connection_, timeline_, options.rank, !options.timeline.empty()),
      ring_(*connection_, memory_, patience_, sets_, timer_),
      directs_(*connection_, memory_, patience_, ring_.notes(),
               {0, options.rank, options.size, {}}) {}

Client::~Client() {
  if (connection_->isForked()) timeline_.leaveToParent();
}

Status Client::health() {
  connection_->pump();
  return connection_->failure();
}

Status Client::run(const Operation& op) {
  // Held from here on, so that the number stays this set's.
  std::shared_ptr<DirectPath> held;
  DirectPath* const path = directs_.find(op.processSet, &held);
  RUEDA_RETURN_IF_ERROR(checkOperation(op, sets_));
  if (shm::gathers(op.kind)) RUEDA_RETURN_IF_ERROR(checkResult(op));
  if (connection_->hasFailed()) return connection_->failure();
  if (ring_.hasName(op.name, op.processSet)) return inFlight(op.kind, op.name);
  DirectPath::Attempt attempt;
  // Operations that are timed take the ring: it is the daemon that knows when the ranks come.
  if (path != nullptr && !timeline_.isRunning()) {
    if (path->isAlone()) return runAlone(op, memory_);
    if (const auto ended = runDirect(op, path, &attempt)) return *ended;
  }
  Submission submission;
  submission.flags = shm::kFlagBlocking;
  if (attempt.tried) submission.flags |= shm::kFlagFallback;
  submission.directIndex = attempt.index;
  return ring_.run(op, &submission, attempt.tried ? path : nullptr, nullptr);
}

// nullopt: the operation is for the ring.
std::optional<Status> Client::runDirect(const Operation& op, DirectPath* path,
                                        DirectPath::Attempt* attempt) {
  if (!path->offers(op)) return std::nullopt;
  if (op.kind != OpKind::kBroadcast || op.processSet == 0) return runOnBoard(op, path, attempt);
  Operation placed = op;  // As the board of its set sees it.
  RUEDA_ASSIGN_OR_RETURN(placed.root, sets_.placeOf(op.processSet, op.root));
  return runOnBoard(placed, path, attempt);
}

std::optional<Status> Client::runOnBoard(const Operation& op, DirectPath* path,
                                         DirectPath::Attempt* attempt) {
  // Without memory for staging it takes the ring, where less may do.
  if (!path->prepare(op).isOk()) return std::nullopt;
  switch (path->run(op, attempt)) {
    case End::kDone:
      return attempt->status;
    case End::kFailed:
      break;
    case End::kFallback:
      return std::nullopt;
    case End::kInterrupted:
      connection_->fail({Code::kInterrupted, "interrupted in " + describe(op)});
      break;
  }
  return connection_->failure();
}

Status Client::startTimeline(const std::string& path, bool marksCycles) {
  RUEDA_RETURN_IF_ERROR(checkTimeline(options_));
  return options_.rank == 0 ? timeline_.start(path, marksCycles) : Status::ok();
}

Status Client::stopTimeline() {
  RUEDA_RETURN_IF_ERROR(checkTimeline(options_));
  if (options_.rank == 0) timeline_.stop();
  return Status::ok();
}

}  // namespace rueda::client
