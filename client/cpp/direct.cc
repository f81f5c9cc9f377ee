// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/direct.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

namespace rueda::client {

using shm::indexAhead;
using shm::OpKind;
using shm::tagged;
using shm::tagIndex;
using shm::tagLow;

namespace {

constexpr uint64_t kChunkBytes = 256 << 10;  // Of one slice; what a rank claims at a time.

// How an operation is cut: `slices` equal parts, each of chunks that are claimed one by one.
struct Cut {
  uint32_t slices = 1;
  uint64_t perSlice = 0;  // Elements; the last slice has the rest.
  uint64_t perChunk = 0;  // Elements.

  uint32_t chunksOf(uint32_t slice, uint64_t count) const {
    const uint64_t begin = std::min(count, slice * perSlice);
    const uint64_t elements = std::min(count, begin + perSlice) - begin;
    return static_cast<uint32_t>((elements + perChunk - 1) / perChunk);
  }
};

Cut cut(const Operation& op, int size, uint64_t sliceFromBytes) {
  const uint64_t elementBytes = shm::dtypeSize(op.dtype);
  const uint64_t line = 64 / elementBytes;
  Cut c;
  c.slices = op.bytes() >= sliceFromBytes ? static_cast<uint32_t>(size) : 1;
  c.perSlice = ((op.count + c.slices - 1) / c.slices + line - 1) / line * line;
  c.perChunk = kChunkBytes / elementBytes;
  return c;
}

// The right to be in run(). A thread that does not get it does something else, so a lock with its
// list of waiters would be for nothing.
class Turn {
 public:
  // acquire and release: the next one sees what this one left.
  explicit Turn(std::atomic<bool>& busy)
      : busy_(busy), isHeld_(!busy.exchange(true, std::memory_order_acquire)) {}
  ~Turn() {
    if (isHeld_) busy_.store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  bool isHeld() const { return isHeld_; }

 private:
  std::atomic<bool>& busy_;
  const bool isHeld_;
};

}  // namespace

DirectPath::DirectPath(Connection& connection, Memory& memory, Patience& patience, WaitNotes& notes,
                       const Seat& seat)
    : connection_(connection),
      memory_(memory),
      patience_(patience),
      notes_(notes),
      board_(connection.board(seat.set)),
      rank_(seat.place),
      size_(seat.size),
      fencesPosts_(!connection.hasProcessBarrier() || connection.policy().spareCores == 0) {}

bool DirectPath::offers(const Operation& op) const {
  return connection_.policy().directEnabled != 0 && op.reduceOp != shm::ReduceOp::kAdasum &&
         !op.lacksRows();
}

DirectPath::End DirectPath::run(const Operation& op, Attempt* attempt) {
  const Turn turn(busy_);
  attempt->tried = turn.isHeld();
  if (!attempt->tried) return End::kFallback;
  if (connection_.hasFailed()) return End::kFailed;
  if (detached_) attachAgain();
  const uint32_t index = attempt->index = next_++;
  End end = End::kFallback;
  if (!detached_)
    end = shm::gathers(op.kind) ? runGather(op, index, signatureOf(op), &attempt->status)
                                : runPosted(op, index, signatureOf(op));
  if (end == End::kFallback) {
    detached_ = true;
    detours_.fetch_add(1);
  }
  return end;
}

void DirectPath::attachAgain() {
  const uint64_t resume = resume_.exchange(0);
  if (resume == 0 || detours_.load() != 0) return;
  if (indexAhead(tagLow(resume), next_) > 0) next_ = tagLow(resume);
  detached_ = false;
}

void DirectPath::detourEnded(std::optional<uint32_t> index) {
  const bool isLast = detours_.fetch_sub(1) == 1;
  if (index && isLast) resume_.store(uint64_t{1} << 32 | *index);
}

DirectPath::End DirectPath::runPosted(const Operation& op, uint32_t index, uint32_t signature) {
  if (op.kind == OpKind::kBarrier || op.bytes() <= shm::kInlineBytes)
    return runInline(op, index, signature);
  if (op.bytes() <= shm::kCopyBytes) return runCopied(op, index, signature);
  line(index, rank_).payload = payloadOf(op);
  post(index, signature);
  const End posted = awaitPosts(op, index, signature);
  if (posted != End::kDone) return posted;
  Tensors tensors;
  bool staged = false;
  if (!resolve(op, index, &tensors, &staged)) return End::kFailed;
  if (op.kind == OpKind::kReducescatter)
    return staged ? scatterStaged(op, index, tensors) : scatter(op, index, tensors);
  if (op.kind == OpKind::kBroadcast)
    return staged ? spreadStaged(op, index, tensors) : spread(op, index, tensors);
  return staged ? sumStaged(op, index, tensors) : sumSlices(op, index, tensors);
}

// The payload travels in the line of its flag, and every rank sums.
DirectPath::End DirectPath::runInline(const Operation& op, uint32_t index, uint32_t signature) {
  shm::InlineVectors own = {};
  if (gives(op) && op.count > 0) {
    std::memcpy(own.bytes, op.input, op.bytes());
    std::memset(line(index, rank_).vectors.bytes, 0, shm::kInlineBytes);
    std::memcpy(line(index, rank_).vectors.bytes, op.input, op.bytes());
  }
  post(index, signature);
  const End posted = awaitPosts(op, index, signature);
  if (posted == End::kDone) finishInline(op, index, own);
  return posted;
}

// The payload travels beside the line, and every rank sums.
DirectPath::End DirectPath::runCopied(const Operation& op, uint32_t index, uint32_t signature) {
  shm::CopySlot* const slots = board_->copies[index & 1];
  if (gives(op)) std::memcpy(slots[rank_].bytes, op.input, op.bytes());
  post(index, signature);
  const End posted = awaitPosts(op, index, signature);
  if (posted != End::kDone) return posted;
  if (op.kind == OpKind::kBroadcast) {
    std::memcpy(op.output, slots[op.root].bytes, op.bytes());
    return End::kDone;
  }
  const uint64_t begin = op.resultBegin(rank_, size_);
  const void* inputs[shm::kMaxRanks];
  for (int rank = 0; rank < size_; ++rank) inputs[rank] = slots[rank].bytes + begin;
  // Nearer than the copy, which the others are reading.
  inputs[rank_] = static_cast<const char*>(op.input) + begin;
  void* output = op.output;
  shm::reduce(op.reduceSpec(size_), inputs, size_, &output, 1,
              op.resultBytes(rank_, size_) / shm::dtypeSize(op.dtype));
  return End::kDone;
}

// Whether this rank's input goes to the others.
bool DirectPath::gives(const Operation& op) const {
  return shm::reduces(op.kind) || (op.kind == OpKind::kBroadcast && op.root == rank_);
}

// Shows what lies on this rank's line to the others.
void DirectPath::post(uint32_t index, uint32_t signature) {
  // release: publishes the payload. The fence, where there is one, keeps the looks at the
  // withdrawal and at sleeping peers behind the post; otherwise that is the work of
  // processBarrier() there.
  line(index, rank_).word.store(tagged(index, signature), std::memory_order_release);
  if (fencesPosts_) std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Looks at the lines from *next on; those before have been seen to match, and stay so until this
// rank leaves. A line that carries something else, or a later operation, never will match.
DirectPath::Meeting DirectPath::look(uint32_t index, uint64_t wanted, int* next) const {
  for (; *next < size_; ++*next) {
    const uint64_t word = line(index, *next).word.load(std::memory_order_acquire);
    if (word == wanted) continue;
    return indexAhead(tagIndex(word), index) >= 0 ? Meeting::kApart : obeyVerdict(index);
  }
  return obeyVerdict(index) == Meeting::kIncomplete ? Meeting::kComplete : Meeting::kApart;
}

// kApart if the daemon has withdrawn the operation. While it has announced that but not decided,
// the caller spins for it: the daemon is at work.
DirectPath::Meeting DirectPath::obeyVerdict(uint32_t index) const {
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

DirectPath::End DirectPath::awaitPosts(const Operation& op, uint32_t index, uint32_t signature) {
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

// `own` is this rank's payload: to read it from the line would wait until the line, which the peers
// are reading, has come back.
void DirectPath::finishInline(const Operation& op, uint32_t index,
                              const shm::InlineVectors& own) const {
  if (op.count == 0 || op.kind == OpKind::kBarrier) return;
  if (op.kind == OpKind::kBroadcast) {
    std::memcpy(op.output, line(index, op.root).vectors.bytes, op.bytes());
    return;
  }
  const void* inputs[shm::kMaxRanks];
  for (int rank = 0; rank < size_; ++rank) inputs[rank] = line(index, rank).vectors.bytes;
  inputs[rank_] = own.bytes;
  alignas(64) shm::InlineVectors sums;
  void* output = sums.bytes;
  // The zeros behind the payload too: whole vectors take half the time of a few elements.
  shm::reduce(op.reduceSpec(size_), inputs, size_, &output, 1,
              sizeof sums.bytes / shm::dtypeSize(op.dtype));
  const uint64_t resultBytes = op.resultBytes(rank_, size_);
  if (resultBytes > 0)
    std::memcpy(op.output, sums.bytes + op.resultBegin(rank_, size_), resultBytes);
}

// Claims and sums chunks of one slice until none is left; returns how many.
uint32_t DirectPath::sumSlice(const Operation& op, uint32_t index, const Tensors& tensors,
                              uint32_t slice) {
  const Cut c = cut(op, size_, connection_.policy().sliceFromBytes);
  const uint64_t elementBytes = shm::dtypeSize(op.dtype);
  const uint64_t sliceBegin = std::min(op.count, slice * c.perSlice);
  const uint64_t sliceEnd = std::min(op.count, sliceBegin + c.perSlice);
  const uint32_t chunks = c.chunksOf(slice, op.count);
  uint32_t done = 0;
  uint32_t chunk = 0;
  while (claimChunk(&board_->claims[index & 1][slice], index, chunks, &chunk)) {
    const uint64_t begin = sliceBegin + chunk * c.perChunk;
    const uint64_t end = std::min(sliceEnd, begin + c.perChunk);
    const void* inputs[shm::kMaxRanks];
    void* outputs[shm::kMaxRanks];
    for (int rank = 0; rank < size_; ++rank) {
      inputs[rank] = tensors.input[rank] + begin * elementBytes;
      outputs[rank] = tensors.output[rank] + begin * elementBytes;
    }
    shm::reduce(op.reduceSpec(size_), inputs, size_, outputs, size_, end - begin);
    ++done;
  }
  return done;
}

// Every rank begins with its own slice and then helps with what others have not claimed: a rank
// that is not running does not hold up the rest for more than the chunk it is in.
DirectPath::End DirectPath::sumSlices(const Operation& op, uint32_t index, const Tensors& tensors) {
  const Cut c = cut(op, size_, connection_.policy().sliceFromBytes);
  uint32_t total = 0;
  uint32_t done = 0;
  for (uint32_t s = 0; s < c.slices; ++s) total += c.chunksOf(s, op.count);
  for (uint32_t s = 0; s < c.slices; ++s)
    done += sumSlice(op, index, tensors, (static_cast<uint32_t>(rank_) + s) % c.slices);
  addFinished(index, done, total);
  return awaitFinished(op, index, total);
}

void DirectPath::addFinished(uint32_t index, uint32_t chunks, uint32_t total) {
  if (chunks == 0) return;
  std::atomic<uint64_t>& finished = board_->finished[index & 1][0];
  uint64_t word = finished.load(std::memory_order_relaxed);
  uint32_t sum = 0;
  do sum = (tagIndex(word) == index ? tagLow(word) : 0) + chunks;
  // seq_cst: publishes the sums, and pairs with sleepers of the done bell.
  while (!finished.compare_exchange_weak(word, tagged(index, sum), std::memory_order_seq_cst));
  if (sum == total) shm::ring(board_->done);
}

DirectPath::End DirectPath::awaitFinished(const Operation& op, uint32_t index, uint32_t total) {
  const std::atomic<uint64_t>& finished = board_->finished[index & 1][0];
  const auto ready = [&] {
    return finished.load(std::memory_order_acquire) == tagged(index, total);
  };
  NotedWait wait(notes_, op, index);
  return toEnd(patience_.until(ready, board_->done, [&wait] { wait.lasts(); }));
}

bool DirectPath::claimChunk(shm::ClaimLine* line, uint32_t index, uint32_t chunks,
                            uint32_t* chunk) {
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

DirectPath::End DirectPath::toEnd(Waited waited) {
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

}  // namespace rueda::client
