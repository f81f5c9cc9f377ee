// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/direct.h"

namespace rueda::client {

using shm::OpKind;

namespace {

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
      seat_(connection, patience, notes, seat),
      places_(connection, memory, seat_, seat.staging),
      small_(seat_),
      sum_(seat_, connection.policy().sliceFromBytes),
      spread_(seat_),
      rows_(connection, memory, seat_, places_) {}

bool DirectPath::offers(const Operation& op) const {
  return connection_.policy().directEnabled != 0 && op.reduceOp != shm::ReduceOp::kAdasum &&
         !op.lacksRows();
}

End DirectPath::run(const Operation& op, Attempt* attempt) {
  const Turn turn(busy_);
  attempt->tried = turn.isHeld();
  if (!attempt->tried) return End::kFallback;
  if (connection_.hasFailed()) return End::kFailed;
  if (detached_) attachAgain();
  const uint32_t index = attempt->index = next_++;
  End end = End::kFallback;
  if (!detached_)
    end = shm::gathers(op.kind) ? rows_.run(op, index, signatureOf(op), &attempt->status)
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
  if (shm::indexAhead(shm::tagLow(resume), next_) > 0) next_ = shm::tagLow(resume);
  detached_ = false;
}

void DirectPath::detourEnded(std::optional<uint32_t> index) {
  const bool isLast = detours_.fetch_sub(1) == 1;
  if (index && isLast) resume_.store(uint64_t{1} << 32 | *index);
}

End DirectPath::runPosted(const Operation& op, uint32_t index, uint32_t signature) {
  if (DirectSmall::takes(op)) return small_.run(op, index, signature);
  seat_.line(index, seat_.rank()).payload = places_.payloadOf(op);
  const End posted = seat_.meet(op, index, signature);
  if (posted != End::kDone) return posted;
  Tensors tensors;
  if (!places_.resolve(op, index, &tensors)) return End::kFailed;
  return op.kind == OpKind::kBroadcast ? spread_.run(op, index, tensors)
                                       : sum_.run(op, index, tensors);
}

}  // namespace rueda::client
