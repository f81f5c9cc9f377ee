// SPDX-License-Identifier: Apache-2.0
#pragma once

// Operations of a process set of one rank: the result is the scaled input. Any thread.

#include "client/cpp/memory.h"
#include "client/cpp/operation.h"

namespace rueda::client {

// `memory` is for results that the library places.
shm::Status runAlone(const Operation& op, Memory& memory);

}  // namespace rueda::client
