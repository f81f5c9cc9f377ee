// SPDX-License-Identifier: Apache-2.0
#pragma once

// One job: its ranks on this host and everything that belongs to it alone. No state is shared
// between jobs. Engine thread.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/engine/settings.h"
#include "daemon/flow/outcome.h"
#include "daemon/membership/board_keeper.h"
#include "daemon/negotiate/process_sets.h"
#include "daemon/observe/deadlock.h"
#include "shm/handshake.h"

namespace rueda::engine {

// Reductions on the data plane at once, of one job: the workers have work while the engine hears of
// an end.
constexpr uint32_t kReducingEnough = 2;

struct Member {
  enum class State { kAbsent, kRunning, kLeft, kLost };
  State state = State::kAbsent;
  flow::SessionId session = 0;
  pid_t pid = 0;
  std::string host;
  std::string lastTry;  // While kAbsent: how its last process came to its end, as a sentence.
  uint64_t arenaBytes = 0;
  uint64_t submitted = 0;
  uint64_t completed = 0;
};

// A client thread that sleeps in a direct operation.
struct DirectWait {
  int rank = 0;
  uint64_t noteId = 0;
  flow::SetId set = 0;
  uint32_t index = 0;
  std::string name;
  flow::TensorSpec spec;
  flow::TimePoint since;
  bool isWithdrawn = false;  // It has been woken, to come to the ring.
};

// An allgather or alltoall whose rows the ranks are copying.
struct Gather {
  // In rank order; keep the memory alive.
  std::vector<flow::Request> requests;
  std::set<int> holders;  // Ranks that have not released it.
  int size = 1;           // Of the process set.
};

// A rank's part in one.
struct GatherShare {
  std::shared_ptr<Gather> gather;
  int place = 0;  // In the process set.
};

// Ranks that wait for each other, as seen at one moment.
struct Deadlock {
  std::string text;           // Who waits for what; empty: there is none.
  uint64_t opsCompleted = 0;  // By then, or begun on boards: when there are more, it is another.

  bool operator==(const Deadlock& other) const {
    return text == other.text && opsCompleted == other.opsCompleted;
  }
};

struct Job {
  enum class State { kForming, kRunning, kFailed, kEnded };

  Job(flow::JobSerial serial, uid_t uid, std::string id, int size, bool isolated,
      membership::BoardKeeper boards);

  std::vector<int> ranksIn(Member::State state) const;
  // "ranks [1, 2] of 3 have not connected<span>", and what became of those that tried.
  std::string describeAbsent(const std::string& span) const;
  bool hasSessions() const;
  // "rank 1 (pid 123 on host a)".
  std::string describe(int rank) const;

  // As ProcessSets::add and remove; the set's board and number go with it.
  shm::Result<flow::SetId> addSet(const std::vector<int64_t>& ranks);
  shm::Status removeSet(flow::SetId set, std::vector<flow::Request>* waiting);
  // `rank` is through with the board of `set`, which was removed.
  void leaveBoard(flow::SetId set, int rank);

  // Whether something waits that this rank may have to take part in.
  bool wants(int rank) const;
  // Whether only others can end that sleep: not if every rank has posted the operation, which then
  // runs, or is over and the sleeper has not told yet.
  bool sleepsOn(const DirectWait& wait) const {
    return !wait.isWithdrawn && !boards.hasAllPosts(wait.set, wait.index);
  }
  // What the threads of every rank sleep in, for the deadlock finder; and how many do.
  std::vector<std::set<observe::WaitedFor>> sleepers() const;
  std::vector<size_t> countSleepers() const;
  // What becomes ready now waits for the end of a reduction, and is fused to fewer and larger ones.
  bool hasEnoughReducing() const { return reducing >= kReducingEnough; }

  const flow::JobSerial serial;
  const uid_t uid;
  const std::string id;
  const int size;
  const bool isolated;

  JobSettings settings;         // Set before the job runs.
  flow::TimePoint cycleEnds{};  // What is runnable waits until then.
  shm::Welcome policy{};        // Equal for all ranks: how they wait and cut must not differ.
  State state = State::kForming;
  shm::Status failure;  // Why it is kFailed or kEnded: what operations get from now on.
  std::vector<Member> members;
  membership::BoardKeeper boards;
  std::map<uint32_t, std::shared_ptr<flow::Segment>> segments;
  uint32_t nextSegment = 1;
  negotiate::ProcessSets sets;
  std::vector<DirectWait> directWaits;  // At most one of each rank in each set.
  // By rank: request → operation.
  std::vector<std::map<uint64_t, observe::WaitedFor>> requestWaits;
  std::map<uint64_t, GatherShare> gathers;  // By gatherKey.
  flow::TimePoint formingNoticeAt;
  std::string reportedDeadlock;  // That it is in now; empty: none.
  bool hasThreads = false;       // Some rank has said that several of its threads write.
  bool hadOthers = false;        // Some rank has other threads, by a look since the last tick.
  Deadlock seenDeadlock;         // At the last tick.
  Deadlock loggedDeadlock;       // In the last log line;
  bool isLoggedCertain = false;  // which said "is", not "may be".
  std::map<std::string, flow::TimePoint> nextStallLine;  // By operation.
  uint64_t opsCompleted = 0;
  uint64_t opsFailed = 0;
  uint64_t bytesReduced = 0;
  std::vector<flow::Decision> runnable;  // Complete, and waiting for the data plane.
  uint32_t reducing = 0;                 // Reductions and broadcasts on the data plane.
  uint32_t running = 0;                  // Those, copies of gathered rows, and touching of pages.
};

// "allreduce 'x'" or "allreduce 'x' of process set 2", printable.
std::string describeOperation(shm::OpKind kind, const std::string& name, flow::SetId set = 0);
inline uint64_t gatherKey(int rank, uint64_t requestId) { return uint64_t(rank) << 56 | requestId; }

}  // namespace rueda::engine
