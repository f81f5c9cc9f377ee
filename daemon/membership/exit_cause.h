// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the kernel says of a client process: how it ended, whether it is stopped, how many threads
// it has. Reads /proc and the pidfd; waits 10 ms at most. Any thread.

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace rueda::membership {

// "was killed by signal 9 (Killed)", "exited with code 1", or "closed its connection" while it
// lives or the kernel does not tell.
std::string exitCause(pid_t pid, int pidfd);

// From the text of /proc/PID/stat: the process state letter ('R', 'Z', …), how many threads it has,
// 0 when absent, and its wait status, -1 when absent. Pure.
struct ProcessStat {
  char state = '?';
  uint64_t threads = 0;
  int waitStatus = -1;
};
ProcessStat parseProcessStat(const std::string& text);

// How many threads the process has now; 0: the kernel does not tell.
uint64_t threadsOf(pid_t pid);

// True while the process is stopped by a signal or a debugger.
bool isStopped(pid_t pid);

// "was killed by signal 11 (Segmentation fault)", "exited with code 0". Pure.
std::string describeWaitStatus(int status);

}  // namespace rueda::membership
