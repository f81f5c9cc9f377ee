// SPDX-License-Identifier: Apache-2.0
#pragma once

// Text from a client made fit for a log line: at most 200 bytes, control characters as \xNN. Pure.

#include <string>

namespace rueda::base {

std::string printable(const std::string& text);

}  // namespace rueda::base
