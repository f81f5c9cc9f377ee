// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/connection.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "shm/memfd.h"
#include "shm/process_barrier.h"

namespace rueda::client {

using shm::Code;
using shm::MessageType;
using shm::Packet;
using shm::Result;
using shm::Status;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int kWaitSliceMs = 100;
constexpr int kGrantTimeoutMs = 30000;
constexpr int kFailureTextMs = 500;
constexpr int kWelcomeTimeoutMs = 10000;

// What a fork does to the sessions made before it: the child must not use them, or end them, and
// what it writes to their tensors stays with it. Process-wide facts, hence the statics.
std::atomic<uint32_t> forkGeneration{0};  // Counts forks on the child's side.
std::mutex openMutex;  // Held over a fork, so that the child finds the list whole.
std::vector<const Segments*>& openSegments = *new std::vector<const Segments*>();  // Never freed.

void onForkedChild() {
  forkGeneration.fetch_add(1, std::memory_order_relaxed);
  for (const Segments* segments : openSegments) segments->becomePrivate();
  openSegments.clear();
  openMutex.unlock();
}

uint32_t currentForkGeneration() {
  static const int registered =
      ::pthread_atfork([] { openMutex.lock(); }, [] { openMutex.unlock(); }, onForkedChild);
  (void)registered;
  return forkGeneration.load(std::memory_order_relaxed);
}

int millisecondsUntil(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

Status fromNotice(const shm::Notice& notice) {
  const auto code = static_cast<Code>(notice.code);
  return {code == Code::kOk ? Code::kProtocolError : code,
          shm::fieldText(notice.text, sizeof notice.text)};
}

Status daemonLost() {
  return {Code::kDaemonLost, "the rueda daemon has ended, or closed this connection"};
}

}  // namespace

Connection::Connection(std::function<bool()> interrupted)
    : interrupted_(std::move(interrupted)),
      forkGeneration_(currentForkGeneration()),
      hasProcessBarrier_(shm::registerForProcessBarrier()) {
  const std::lock_guard<std::mutex> lock(openMutex);
  openSegments.push_back(&segments_);
}

Connection::~Connection() {
  {
    const std::lock_guard<std::mutex> lock(openMutex);
    openSegments.erase(std::remove(openSegments.begin(), openSegments.end(), &segments_),
                       openSegments.end());
  }
  if (socket_.valid() && !isForked())
    (void)shm::sendMessage(socket_.get(),
                           shm::makeMessage<shm::PlainMessage>(MessageType::kGoodbye));
}

bool Connection::isForked() const {
  return forkGeneration.load(std::memory_order_relaxed) != forkGeneration_;
}

shm::ControlHeader* Connection::control() const {
  return reinterpret_cast<shm::ControlHeader*>(control_.data());
}

shm::Board* Connection::board(uint32_t set) const { return shm::boardAt(boards_.data(), set); }

Result<std::unique_ptr<Connection>> Connection::open(const Options& options) {
  RUEDA_ASSIGN_OR_RETURN(auto socket, shm::connectUnix(options.socket));
  std::unique_ptr<Connection> connection(new Connection(options.interrupted));
  connection->socket_ = std::move(socket);
  RUEDA_RETURN_IF_ERROR(connection->greet(options));
  RUEDA_RETURN_IF_ERROR(connection->awaitWelcome(options));
  RUEDA_RETURN_IF_ERROR(connection->awaitJob(options));
  return connection;
}

Status Connection::greet(const Options& options) {
  auto hello = shm::makeMessage<shm::Hello>(MessageType::kHello);
  if (options.job.empty() || options.job.size() >= sizeof hello.job)
    return {Code::kInvalidArgument, "job id '" + options.job + "' must have 1 to 127 bytes"};
  hello.protocolMin = shm::kProtocolMin;
  hello.protocolMax = shm::kProtocolMax;
  hello.rank = options.rank;
  hello.size = options.size;
  hello.localRank = options.localRank;
  hello.localSize = options.localSize;
  hello.startTimeoutMs = options.startTimeoutMs;
  hello.isolated = options.isolated ? 1 : 0;
  hello.knobs = options.knobs;
  shm::copyText(hello.job, sizeof hello.job, options.job);
  shm::copyText(hello.hostname, sizeof hello.hostname, options.hostname);
  const Status sent = shm::sendMessage(socket_.get(), hello);
  // A daemon that refuses at once may have closed already; its reason is still to be read.
  return sent.code() == Code::kDaemonLost ? Status::ok() : sent;
}

Result<bool> Connection::receive(int timeoutMs, Packet* packet) {
  pollfd waiting{socket_.get(), POLLIN, 0};
  const int ready = ::poll(&waiting, 1, timeoutMs);
  if (ready <= 0) return false;
  const auto state = shm::receivePacket(socket_.get(), false, packet);
  if (state.isOk() && state.value() != shm::ReceiveState::kClosed)
    return state.value() == shm::ReceiveState::kPacket;
  lost_.store(true, std::memory_order_release);
  return state.isOk() ? daemonLost() : state.status();
}

Status Connection::awaitWelcome(const Options& options) {
  const int64_t limit = std::min<int64_t>(kWelcomeTimeoutMs, options.startTimeoutMs);
  const auto deadline = Clock::now() + std::chrono::milliseconds(limit);
  Packet packet;
  for (;;) {
    RUEDA_ASSIGN_OR_RETURN(const bool got,
                           receive(std::min(kWaitSliceMs, millisecondsUntil(deadline)), &packet));
    if (got) break;
    if (options.interrupted && options.interrupted())
      return {Code::kInterrupted, "interrupted in init"};
    if (Clock::now() >= deadline)
      return {Code::kDeadlineExceeded, "the daemon at " + options.socket +
                                           " does not answer within " + std::to_string(limit) +
                                           " ms"};
  }
  if (const auto* refused = packet.as<shm::Notice>(MessageType::kRefused))
    return fromNotice(*refused);
  const auto* welcome = packet.as<shm::Welcome>(MessageType::kWelcome);
  if (welcome == nullptr || packet.fds.size() != 3)
    return {Code::kProtocolError, "the daemon at " + options.socket + " did not welcome us"};
  welcome_ = *welcome;
  isIsolated_ = options.size > 1 && welcome_.directEnabled == 0;
  RUEDA_RETURN_IF_ERROR(shm::verifySealedMemfd(packet.fds[0].get(), shm::kControlBytes));
  RUEDA_RETURN_IF_ERROR(shm::verifySealedMemfd(packet.fds[2].get(), shm::kBoardsBytes));
  RUEDA_ASSIGN_OR_RETURN(control_, shm::Mapping::map(packet.fds[0].get(), shm::kControlBytes));
  RUEDA_ASSIGN_OR_RETURN(boards_, shm::Mapping::map(packet.fds[2].get(), shm::kBoardsBytes));
  control_.touch();
  boards_.touch(shm::kBoardBytes);
  doorbell_ = std::move(packet.fds[1]);
  return Status::ok();
}

Status Connection::awaitJob(const Options& options) {
  // The daemon keeps the deadline and tells who is missing; this one is for a daemon that hangs.
  const auto deadline = Clock::now() + std::chrono::milliseconds(options.startTimeoutMs) +
                        std::chrono::milliseconds(kWelcomeTimeoutMs);
  Packet packet;
  for (;;) {
    RUEDA_ASSIGN_OR_RETURN(const bool got, receive(kWaitSliceMs, &packet));
    if (!got) {
      if (options.interrupted && options.interrupted())
        return {Code::kInterrupted, "interrupted in init"};
      if (Clock::now() >= deadline)
        return {Code::kDeadlineExceeded, "the daemon does not complete the job"};
      continue;
    }
    if (packet.as<shm::PlainMessage>(MessageType::kJobReady) != nullptr) return Status::ok();
    RUEDA_RETURN_IF_ERROR(handlePacket(&packet));
    if (hasFailed()) return failure();
  }
}

Status Connection::handlePacket(Packet* packet) {
  if (const auto* notice = packet->as<shm::Notice>(MessageType::kFormingNotice)) {
    std::fprintf(stderr, "rueda: %s\n", shm::fieldText(notice->text, sizeof notice->text).c_str());
    return Status::ok();
  }
  for (const MessageType type : {MessageType::kJobFailed, MessageType::kRefused})
    if (const auto* notice = packet->as<shm::Notice>(type)) {
      fail(fromNotice(*notice));
      return Status::ok();
    }
  if (const auto* peer = packet->as<shm::SegmentMessage>(MessageType::kPeerSegment);
      peer != nullptr && packet->fds.size() == 1) {
    Granted segment{peer->segment, peer->bytes, std::move(packet->fds[0])};
    // What this rank may never need it need not have.
    if (!mapPeers(segment).isOk()) unmappedPeers_.push_back(std::move(segment));
    return Status::ok();
  }
  // Late: who asked for it has given up.
  if (const auto* grant = packet->as<shm::SegmentMessage>(MessageType::kSegmentGranted);
      grant != nullptr && packet->fds.size() == (grant->code == 0 ? 1u : 0u)) {
    if (grant->code == 0)
      unused_.push_back({grant->segment, grant->bytes, std::move(packet->fds[0])});
    return Status::ok();
  }
  return {Code::kProtocolError, "unexpected message from the daemon"};
}

Status Connection::mapPeers(const Granted& segment) {
  RUEDA_ASSIGN_OR_RETURN(auto mapping, shm::Mapping::map(segment.memfd.get(), segment.bytes));
  mapping.touch();
  segments_.addPeers(segment.id, std::move(mapping));
  return Status::ok();
}

Status Connection::handleNext(int timeoutMs, bool* got) {
  Packet packet;
  const auto received = receive(timeoutMs, &packet);
  *got = received.isOk() && received.value();
  Status handled = received.status();
  if (*got) handled = handlePacket(&packet);
  if (!handled.isOk()) fail(handled);
  return handled;
}

void Connection::pump() {
  const std::unique_lock<std::mutex> lock(socketMutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // Somebody else is reading.
  for (bool got = true; got;)
    if (!handleNext(0, &got).isOk()) return;
}

bool Connection::isInterrupted() {
  if (!interrupted_ || !interrupted_()) return false;
  fail({Code::kInterrupted, "interrupted while waiting for memory from the daemon"});
  return true;
}

Status Connection::awaitSegment(uint32_t id, int timeoutMs) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeoutMs);
  const std::lock_guard<std::mutex> lock(socketMutex_);
  while (segments_.region(id).base == nullptr) {
    if (hasFailed()) return failure();
    const auto unmapped = std::find_if(unmappedPeers_.begin(), unmappedPeers_.end(),
                                       [id](const Granted& segment) { return segment.id == id; });
    if (unmapped != unmappedPeers_.end()) {
      RUEDA_RETURN_IF_ERROR(mapPeers(*unmapped));
      unmappedPeers_.erase(unmapped);
      continue;
    }
    bool got = false;
    RUEDA_RETURN_IF_ERROR(handleNext(std::min(kWaitSliceMs, millisecondsUntil(deadline)), &got));
    if (!got && isInterrupted()) return failure();
    if (Clock::now() >= deadline)
      return {Code::kInternal, "segment " + std::to_string(id) + " of a peer did not arrive"};
  }
  return Status::ok();
}

Result<uint32_t> Connection::addSegment(uint64_t bytes) {
  const uint64_t wanted = (bytes + 4095) / 4096 * 4096;
  const std::lock_guard<std::mutex> lock(socketMutex_);
  const auto fits = [wanted](const Granted& segment) { return segment.bytes >= wanted; };
  // There is no way to give one back: what could not be mapped once is for the next try.
  auto chosen = std::find_if(unused_.begin(), unused_.end(), fits);
  if (chosen == unused_.end()) {
    RUEDA_RETURN_IF_ERROR(awaitGrant(wanted));
    chosen = std::prev(unused_.end());
  }
  RUEDA_RETURN_IF_ERROR(shm::verifySealedMemfd(chosen->memfd.get(), chosen->bytes));
  RUEDA_ASSIGN_OR_RETURN(auto mapping, shm::Mapping::map(chosen->memfd.get(), chosen->bytes));
  mapping.touch();
  const uint32_t id = chosen->id;
  segments_.addOwn(id, std::move(mapping), std::move(chosen->memfd));
  unused_.erase(chosen);
  auto ready = shm::makeMessage<shm::SegmentMessage>(MessageType::kSegmentReady);
  ready.segment = id;
  RUEDA_RETURN_IF_ERROR(shm::sendMessage(socket_.get(), ready));
  return id;
}

Status Connection::awaitGrant(uint64_t bytes) {
  auto request = shm::makeMessage<shm::SegmentMessage>(MessageType::kAllocSegment);
  request.bytes = bytes;
  RUEDA_RETURN_IF_ERROR(shm::sendMessage(socket_.get(), request));
  const auto deadline = Clock::now() + std::chrono::milliseconds(kGrantTimeoutMs);
  for (;;) {  // Also after the job's end: what was complete by then is still collected.
    Packet packet;
    const auto got = receive(kWaitSliceMs, &packet);
    const bool hasCome = got.isOk() && got.value();
    const auto* grant = packet.as<shm::SegmentMessage>(MessageType::kSegmentGranted);
    if (hasCome && grant != nullptr && grant->code != 0)
      return {static_cast<Code>(grant->code), shm::fieldText(grant->text, sizeof grant->text)};
    const bool isIt = hasCome && grant != nullptr && grant->bytes >= bytes;
    const Status handled = hasCome ? handlePacket(&packet) : got.status();
    if (!handled.isOk()) fail(handled);
    if (isIt || !handled.isOk()) return handled;
    if (!hasCome && isInterrupted()) return failure();
    if (Clock::now() >= deadline)
      return {Code::kDeadlineExceeded, "the daemon does not answer a request for memory"};
  }
}

Status Connection::failure() const {
  const std::lock_guard<std::mutex> lock(failureMutex_);
  return failure_;
}

void Connection::fail(const Status& status) {
  const std::lock_guard<std::mutex> lock(failureMutex_);
  if (failure_.isOk()) failure_ = status;
  // release: a reader of the flag then finds the text.
  failed_.store(true, std::memory_order_release);
}

Status Connection::awaitFailure() {
  const auto deadline = Clock::now() + std::chrono::milliseconds(kFailureTextMs);
  while (!hasFailed() && Clock::now() < deadline) {
    pollfd waiting{socket_.get(), POLLIN, 0};
    ::poll(&waiting, 1, 10);
    pump();
  }
  if (!hasFailed()) fail({Code::kRankLost, "the job has ended; the daemon did not say why"});
  return failure();
}

}  // namespace rueda::client
