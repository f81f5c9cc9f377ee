// SPDX-License-Identifier: Apache-2.0
#pragma once

// Looks after operations that do not come together: sends direct waiters to the ring when their
// peers are there, reports deadlocks (certain ones at once, likely ones soon) and stalls after a
// while. Engine thread.

#include <chrono>
#include <functional>
#include <vector>

#include "daemon/engine/job.h"
#include "daemon/flow/state_view.h"
#include "daemon/membership/exit_cause.h"

namespace rueda::engine {

// Direct waiters whose peers submitted through the ring, or wait at another index, can only meet
// them in the ring: withdraws those direct operations. Call after every batch of submissions.
void untangle(Job* job);

// One log line when a thread of every rank of the job sleeps in an operation, and none of these has
// all of its ranks.
// "is deadlocked": no process of the job has a thread that does not sleep so, hence nobody can
// submit what is missing, and it ends only when a wait has a deadline, a signal is handled, or a
// rank goes. Said at once, or where ranks have several threads that write, when from one tick to
// the next nothing has moved.
// "may be deadlocked": some process has other threads, or the kernel does not say how many. Whether
// they are about to submit what is missing cannot be known; said when from one tick to the next
// nothing has moved, and corrected when it becomes certain.
// `threadsOf` is asked for each rank; where doubt is left, once from tick to tick.
using ThreadsOf = std::function<uint64_t(pid_t)>;
void reportDeadlock(Job* job, bool atTick, const ThreadsOf& threadsOf = membership::threadsOf);

// What waits in the job, as operators see it: oldest first. Costs a look into /proc for each rank
// and a copy of each name: for those who ask, not for every turn.
std::vector<flow::PendingView> pendingOf(const Job& job, flow::TimePoint now);
// True if some operation has waited for `age` or longer. Cheap.
bool hasOlderThan(const Job& job, flow::TimePoint now, std::chrono::milliseconds age);

// One log line for each operation that has waited longer than `warnAfter`, then at doubling
// distances; at most 10 a call.
void reportStalls(Job* job, flow::TimePoint now, std::chrono::milliseconds warnAfter);

// Whether it is no fault of anybody that this waits: a join, for ranks that run.
bool isNoFault(const flow::PendingView& pending);
// "allreduce 'x': ranks [1] missing (rank 1: pid 12 on host a, stopped) for 1.2 s; ranks [0] wait".
std::string describePending(const Job& job, const flow::PendingView& pending);

}  // namespace rueda::engine
