// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/board_seat.h"

#include <sched.h>

#include <chrono>

namespace rueda::client {

using shm::indexAhead;
using shm::tagged;
using shm::tagIndex;
using shm::tagLow;

namespace {

constexpr std::chrono::seconds kLastCopiesLimit{10};

// True when a phase word has reached `blocks` of operation `index`. A rank that is in a later
// operation has done all of this one.
bool reached(uint64_t word, uint32_t index, uint32_t blocks) {
  const int32_t ahead = indexAhead(tagIndex(word), index);
  return ahead > 0 || (ahead == 0 && tagLow(word) >= blocks);
}

}  // namespace

BoardSeat::BoardSeat(Connection& connection, Patience& patience, WaitNotes& notes, const Seat& seat)
    : connection_(connection),
      patience_(patience),
      notes_(notes),
      board_(connection.board(seat.set)),
      place_(seat.place),
      size_(seat.size),
      fencesPosts_(!connection.hasProcessBarrier() || connection.policy().spareCores == 0) {}

void BoardSeat::post(uint32_t index, uint32_t signature) {
  // release: publishes the payload. The fence, where there is one, keeps the looks at the
  // withdrawal and at sleeping peers behind the post; otherwise that is the work of
  // processBarrier() there.
  line(index, place_).word.store(tagged(index, signature), std::memory_order_release);
  if (fencesPosts_) std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Looks at the lines from *next on; those before have been seen to match, and stay so until this
// rank leaves. A line that carries something else, or a later operation, never will match.
BoardSeat::Meeting BoardSeat::look(uint32_t index, uint64_t wanted, int* next) const {
  for (; *next < size_; ++*next) {
    const uint64_t word = line(index, *next).word.load(std::memory_order_acquire);
    if (word == wanted) continue;
    return indexAhead(tagIndex(word), index) >= 0 ? Meeting::kApart : obeyVerdict(index);
  }
  return obeyVerdict(index) == Meeting::kIncomplete ? Meeting::kComplete : Meeting::kApart;
}

// kApart if the daemon has withdrawn the operation. While it has announced that but not decided,
// the caller spins for it: the daemon is at work.
BoardSeat::Meeting BoardSeat::obeyVerdict(uint32_t index) const {
  const shm::Withdrawal& withdrawal = board_->withdrawals[index & 1];
  const uint64_t intent = withdrawal.intent.load(std::memory_order_acquire);
  if (__builtin_expect(intent != tagged(index, 1), 1))
    return intent != 0 && indexAhead(tagIndex(intent), index) > 0 ? Meeting::kApart
                                                                  : Meeting::kIncomplete;
  uint64_t verdict = withdrawal.verdict.load(std::memory_order_acquire);
  while (tagIndex(verdict) != index && board_->abort.load(std::memory_order_relaxed) == 0 &&
         !connection_.hasFailed()) {
    ::sched_yield();
    connection_.pump();  // Notices a daemon that died in between.
    verdict = withdrawal.verdict.load(std::memory_order_acquire);
  }
  return verdict == tagged(index, shm::kVerdictGo) ? Meeting::kIncomplete : Meeting::kApart;
}

End BoardSeat::awaitPosts(const Operation& op, uint32_t index, uint32_t signature) {
  int next = 0;
  const uint64_t wanted = tagged(index, signature);
  Meeting meeting = look(index, wanted, &next);
  if (meeting != Meeting::kIncomplete) {
    shm::ring(board_->arrival);  // The last to arrive, or the one to disagree: others may sleep.
    return meeting == Meeting::kComplete ? End::kDone : End::kFallback;
  }
  const auto ready = [&] { return (meeting = look(index, wanted, &next)) != Meeting::kIncomplete; };
  NotedWait wait(notes_, op, index);
  const Waited waited = patience_.until(ready, board_->arrival, [&wait] { wait.lasts(); });
  if (waited != Waited::kReady) return toEnd(waited);
  return meeting == Meeting::kComplete ? End::kDone : End::kFallback;
}

void BoardSeat::addFinished(uint32_t index, uint32_t chunks, uint32_t total) {
  if (chunks == 0) return;
  std::atomic<uint64_t>& finished = board_->finished[index & 1][0];
  uint64_t word = finished.load(std::memory_order_relaxed);
  uint32_t sum = 0;
  do sum = (tagIndex(word) == index ? tagLow(word) : 0) + chunks;
  // seq_cst: publishes the sums, and pairs with sleepers of the done bell.
  while (!finished.compare_exchange_weak(word, tagged(index, sum), std::memory_order_seq_cst));
  if (sum == total) shm::ring(board_->done);
}

End BoardSeat::awaitFinished(const Operation& op, uint32_t index, uint32_t total) {
  const std::atomic<uint64_t>& finished = board_->finished[index & 1][0];
  const auto ready = [&] {
    return finished.load(std::memory_order_acquire) == tagged(index, total);
  };
  NotedWait wait(notes_, op, index);
  return toEnd(patience_.until(ready, board_->done, [&wait] { wait.lasts(); }));
}

bool BoardSeat::claimChunk(uint32_t index, uint32_t slice, uint32_t chunks, uint32_t* chunk) {
  shm::ClaimLine* const line = &board_->claims[index & 1][slice];
  uint64_t word = line->word.load(std::memory_order_relaxed);
  for (;;) {
    const uint32_t taken = tagIndex(word) == index ? tagLow(word) : 0;
    if (taken >= chunks) return false;
    if (line->word.compare_exchange_weak(word, tagged(index, taken + 1),
                                         std::memory_order_relaxed)) {
      *chunk = taken;
      return true;
    }
  }
}

End BoardSeat::toEnd(Waited waited) {
  switch (waited) {
    case Waited::kReady:
      return End::kDone;
    case Waited::kInterrupted:
      return End::kInterrupted;
    case Waited::kFailed:
    case Waited::kTimedOut:
      break;
  }
  return End::kFailed;
}

End BoardSeat::awaitPhases(const Operation& op, uint32_t index, bool summed, uint32_t blocks,
                           int first, int end) {
  int next = first;  // Ranks before it are there.
  const auto ready = [&] {
    for (; next < end; ++next) {
      const shm::PhaseLine& phase = board_->phases[next];
      if (!reached((summed ? phase.summed : phase.copiedIn).load(std::memory_order_acquire), index,
                   blocks))
        return false;
    }
    return true;
  };
  NotedWait wait(notes_, op, index);
  return toEnd(patience_.until(ready, board_->done, [&wait] { wait.lasts(); }));
}

void BoardSeat::publishPhase(uint32_t index, bool summed, uint32_t blocks) {
  shm::PhaseLine& mine = board_->phases[place_];
  // seq_cst: publishes the block (or the place), and pairs with sleepers of the done bell.
  (summed ? mine.summed : mine.copiedIn).store(tagged(index, blocks), std::memory_order_seq_cst);
  shm::ring(board_->done);
}

// After the job has ended: a peer that had its copy may have left, and ended it so, while the
// others are still copying. They need nobody for that.
bool BoardSeat::awaitCopies(uint32_t index, uint32_t total) const {
  if (connection_.failure().code() != shm::Code::kShutDown) return false;
  const std::atomic<uint64_t>& finished = board_->finished[index & 1][0];
  const auto deadline = std::chrono::steady_clock::now() + kLastCopiesLimit;
  while (finished.load(std::memory_order_acquire) != tagged(index, total)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    ::sched_yield();
  }
  return true;
}

}  // namespace rueda::client
