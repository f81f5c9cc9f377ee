// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/submitter.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace rueda::client {

using shm::Code;
using shm::Status;
using shm::SubmissionEntry;

namespace {

// Why this rank cannot take part; empty if it can.
std::string_view reasonOf(const Submission& submission) {
  return std::string_view(submission.refusal.message()).substr(0, shm::kMaxReasonBytes);
}

constexpr int64_t kMostSlotsAtOnce = shm::kRingSlots / 2;

}  // namespace

Submitter::Submitter(Connection& connection, int rank, int size)
    : connection_(connection),
      rank_(rank),
      size_(size),
      ring_(reinterpret_cast<char*>(connection.control()) + shm::kSubmissionOffset,
            &connection.control()->submitTail, &connection.control()->submitHead) {}

Status Submitter::write(const std::vector<Submission>& submissions) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RUEDA_RETURN_IF_ERROR(publish(submissions));
  ringDoorbell();
  return Status::ok();
}

Status Submitter::start(const std::vector<Submission>& submissions) {
  const std::lock_guard<std::mutex> lock(mutex_);
  RUEDA_RETURN_IF_ERROR(publish(submissions));
  const bool isOfAll = std::all_of(submissions.begin(), submissions.end(),
                                   [](const Submission& s) { return s.op.processSet == 0; });
  uint64_t started = count().load(std::memory_order_relaxed);
  // What a rank starts after it has joined is refused.
  if (isOfAll && !hasJoined())
    count().store(started += submissions.size(), std::memory_order_seq_cst);
  const uint32_t asleep = connection_.control()->daemonAsleep.load(std::memory_order_seq_cst);
  // In a smaller process set the counts of all say nothing about who is last.
  if (asleep != shm::kNapping &&
      (!trusts() || !isOfAll || asleep == shm::kAsleepWanting || mayBeLast(started)))
    ringDoorbell();
  else
    owesDoorbell_.store(true);
  return Status::ok();
}

// Ranks that must not touch each other's tensors may all the same write on the board, but not rely
// on what others write there.
bool Submitter::trusts() const { return connection_.policy().directEnabled != 0; }

// seq_cst, here and where the own count is written: of two ranks at least one sees the other's.
bool Submitter::mayBeLast(uint64_t started) const {
  for (int rank = 0; rank < size_; ++rank)
    if (connection_.board()->starts[rank].count.load(std::memory_order_seq_cst) < started)
      return false;
  return true;
}

bool Submitter::hasJoined() const {
  return (count().load(std::memory_order_relaxed) & shm::kAllStarted) == shm::kAllStarted;
}

void Submitter::beginJoin() {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++joining_;
  if (hasJoined()) return;
  startedBefore_ = count().load(std::memory_order_relaxed);
  count().store(startedBefore_ | shm::kAllStarted, std::memory_order_seq_cst);
}

// While one thread's join is on its way, another's fails: the name is taken. It is free before the
// first one comes here; then the second join begins in its round, and ends the next.
void Submitter::endJoin(bool hasFailed) {
  const std::lock_guard<std::mutex> lock(mutex_);
  --joining_;
  const uint64_t joined = count().load(std::memory_order_relaxed) | shm::kAllStarted;
  if (!hasFailed)
    count().store(joined + 1, std::memory_order_seq_cst);
  else if (joining_ == 0 && hasJoined())
    count().store(startedBefore_, std::memory_order_seq_cst);
}

void Submitter::hurry() {
  if (!owesDoorbell_.load()) return;
  const bool naps =
      connection_.control()->daemonAsleep.load(std::memory_order_seq_cst) == shm::kNapping;
  const uint64_t started = count().load(std::memory_order_relaxed);
  if (naps && (!trusts() || mayBeLast(started))) settle();
}

void Submitter::settle() {
  if (owesDoorbell_.load() && owesDoorbell_.exchange(false)) ringDoorbell();
}

Status Submitter::publish(const std::vector<Submission>& submissions) {
  const std::thread::id thread = std::this_thread::get_id();
  if (firstThread_ == std::thread::id()) firstThread_ = thread;
  hasThreads_ = hasThreads_ || firstThread_ != thread;
  int64_t staged = 0;
  for (const Submission& submission : submissions) {
    const SubmissionEntry entry = encode(submission);
    const int64_t slots = shm::slotsFor<SubmissionEntry>(tail_.size());
    if (staged + slots > kMostSlotsAtOnce) {
      ring_.publish();
      ringDoorbell();
      staged = 0;
    }
    RUEDA_RETURN_IF_ERROR(awaitSpace(staged + slots));
    shm::writeSlots(entry, tail_, [this](const void* slot) { ring_.stage(slot); });
    staged += slots;
  }
  ring_.publish();
  return Status::ok();
}

// The daemon empties the ring without waiting for anybody, so this takes as long as it needs to
// run.
Status Submitter::awaitSpace(int64_t slots) {
  for (;;) {
    const int64_t space = ring_.space();
    if (space >= slots) return Status::ok();
    if (space < 0) return {Code::kProtocolError, "the daemon's ring index is impossible"};
    ringDoorbell();
    connection_.pump();
    if (connection_.hasFailed()) return connection_.failure();
    ::sched_yield();
  }
}

SubmissionEntry Submitter::encode(const Submission& submission) {
  const Operation& op = submission.op;
  SubmissionEntry entry{};
  entry.type = static_cast<uint8_t>(submission.type);
  entry.kind = static_cast<uint8_t>(op.kind);
  entry.dtype = static_cast<uint8_t>(op.dtype);
  entry.reduceOp = static_cast<uint8_t>(op.reduceOp);
  entry.nameBytes = static_cast<uint16_t>(op.name.size());
  entry.ndim = static_cast<uint8_t>(op.ndim);
  entry.flags = submission.flags;
  if (hasThreads_) entry.flags |= shm::kFlagThreads;
  if (submission.submittedNs != 0) entry.flags |= shm::kFlagStamped;
  entry.requestId = submission.requestId;
  entry.inSegment = submission.input.segment;
  entry.inOffset = submission.input.offset;
  entry.outSegment = submission.output.segment;
  entry.outOffset = submission.output.offset;
  if (!submission.refusal.isOk()) {
    entry.flags |= shm::kFlagRefused;
    entry.inSegment = static_cast<uint32_t>(submission.refusal.code());
    entry.outSegment = static_cast<uint32_t>(reasonOf(submission).size());
  }
  entry.extra = submission.numbers.empty() ? submission.extra : submission.numbers.size();
  entry.prescale = op.prescale;
  entry.postscale = op.postscale;
  entry.root = op.root;
  entry.processSet = op.processSet;
  entry.priority = op.priority;
  entry.directIndex = submission.directIndex;
  entry.groupSize = submission.groupSize;
  entry.groupId = submission.groupId;

  tail_.clear();
  const auto append = [this](const void* from, size_t bytes) {
    tail_.append(static_cast<const char*>(from), bytes);
  };
  append(op.shape, op.ndim * sizeof(int64_t));
  append(submission.numbers.data(), submission.numbers.size() * sizeof(int64_t));
  if (submission.submittedNs != 0) append(&submission.submittedNs, sizeof(int64_t));
  tail_.append(op.name).append(reasonOf(submission));
  return entry;
}

void Submitter::nudge() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(connection_.doorbell(), &one, sizeof one);
}

void Submitter::ringDoorbell() {
  std::atomic<uint32_t>& asleep = connection_.control()->daemonAsleep;
  // The load comes first: an exchange would take the line from the daemon at every submission.
  if (asleep.load(std::memory_order_seq_cst) == shm::kAwake ||
      asleep.exchange(shm::kAwake, std::memory_order_seq_cst) == shm::kAwake)
    return;
  nudge();
}

}  // namespace rueda::client
