// SPDX-License-Identifier: Apache-2.0
#pragma once

// Texts that come from training processes (job ids, names of tensors, hosts) made fit for a proto
// string: one invalid byte would make every reader refuse the whole answer. Pure; any thread.

#include <string>
#include <string_view>

namespace rueda::serve {

// The text with each byte that is not part of valid UTF-8 as "\xNN".
std::string validUtf8(std::string_view text);

}  // namespace rueda::serve
