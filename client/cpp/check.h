// SPDX-License-Identifier: Apache-2.0
#pragma once

// What can be wrong with an operation that its caller alone got wrong: found before anything is
// submitted. Pure; any thread.

#include <string>

#include "client/cpp/operation.h"
#include "client/cpp/process_sets.h"

namespace rueda::client {

// "allreduce 'x'".
std::string describe(const Operation& op);
// kInvalidArgument names the operation and the values.
shm::Status checkOperation(const Operation& op, const ProcessSets& sets);
// Of a gather that is run and not submitted: where its rows may go.
shm::Status checkResult(const Operation& op);

}  // namespace rueda::client
