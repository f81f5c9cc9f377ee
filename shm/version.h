// SPDX-License-Identifier: Apache-2.0
#pragma once

// The version of everything that is built from this tree; the wheel has the same.

namespace rueda::shm {

constexpr char kVersion[] = "0.1.0";

}  // namespace rueda::shm
