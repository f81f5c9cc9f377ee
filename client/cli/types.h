// SPDX-License-Identifier: Apache-2.0
#pragma once

// The data types and what an allreduce can do with each, from the same functions as the sums: a
// table for people, JSON for programs. Pure; any thread. Asks no daemon.

#include <string>

namespace rueda::cli {

// Each ends with a newline.
std::string renderTypes();
std::string jsonTypes();

}  // namespace rueda::cli
