// SPDX-License-Identifier: Apache-2.0
#pragma once

// Answers of the daemon as text for people and as JSON for programs. Pure; any thread. Control
// characters, which could steer a terminal, are shown as \xNN. JSON field names are snake_case and
// stay; numbers are numbers; JSON is never cut, while lists for people are.

#include <string>

#include "proto/status.pb.h"

namespace rueda::cli {

// Each ends with a newline.
std::string renderStatus(const v1::GetStatusResponse& response);
std::string renderJobs(const v1::ListJobsResponse& response);
// First, for each rank that is waited for, one line that says so; then one line per operation.
std::string renderPending(const v1::ListPendingResponse& response);
std::string renderHealth(const v1::GetStatusResponse& response);

std::string jsonStatus(const v1::GetStatusResponse& response);
std::string jsonJobs(const v1::ListJobsResponse& response);
std::string jsonPending(const v1::ListPendingResponse& response);
std::string jsonHealth(const v1::GetStatusResponse& response);

// Every part serves, and no job failed or is, or may be, deadlocked.
bool isHealthy(const v1::GetStatusResponse& response);

}  // namespace rueda::cli
