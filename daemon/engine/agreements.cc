// SPDX-License-Identifier: Apache-2.0
// What ranks agree on without a tensor: barriers, joins, process sets.
#include "daemon/engine/engine.h"

namespace rueda::engine {

using flow::Decision;
using shm::Code;
using shm::Status;

void Engine::finishAgreement(Job* job, const Decision& decision) {
  const flow::TensorSpec& spec = decision.spec();
  if (spec.kind == shm::OpKind::kJoin)
    return endDecision(job, decision, Status::ok(), decision.requests.back().rank);
  if (spec.kind == shm::OpKind::kAddSet) {
    const auto added = job->addSet(spec.ranks);
    return endDecision(job, decision, added.status(), added.isOk() ? added.value() : 0);
  }
  if (spec.kind == shm::OpKind::kRemoveSet) {
    std::vector<flow::Request> waiting;
    const Status removed = job->removeSet(spec.dissolved, &waiting);
    failRequests(job, waiting,
                 {Code::kUnavailable, "process set " + std::to_string(spec.dissolved) +
                                          " was removed while the operation waited in it"});
    return endDecision(job, decision, removed);
  }
  endDecision(job, decision, Status::ok());
}

void Engine::failRequests(Job* job, const std::vector<flow::Request>& requests,
                          const Status& status) {
  for (const flow::Request& request : requests) {
    ++job->opsFailed;
    job->requestWaits[static_cast<size_t>(request.rank)].erase(request.requestId);
    flow::Outcome outcome;
    outcome.session = request.session;
    outcome.requestId = request.requestId;
    outcome.status = status;
    deliver(std::move(outcome));
  }
}

}  // namespace rueda::engine
