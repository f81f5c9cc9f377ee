// SPDX-License-Identifier: Apache-2.0
#include "daemon/engine/lobby.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "daemon/membership/exit_cause.h"
#include "daemon/observe/deadlock.h"
#include "shm/version.h"

namespace rueda::engine {

using shm::Code;
using shm::MessageType;
using shm::Status;
using std::chrono::milliseconds;
using submit::Session;

namespace {

constexpr int kMaxAcceptsPerTurn = 16;
constexpr int kMaxPacketsPerTurn = 32;
constexpr int kMaxGreetingsPerTurn = 4;
constexpr auto kFormingNoticeFirst = std::chrono::seconds(5);
constexpr auto kFormingNoticeNext = std::chrono::seconds(30);
// Waiters on spare cores spin by pausing for as long as a wake-up costs; where ranks share cores
// they yield, and not for long, since spinning delays the very thread that is waited for.
constexpr uint32_t kSpinSpareMicros = 50;
constexpr uint32_t kSpinSharedMicros = 20;
// Below, the last rank to arrive sums alone: handing out slices costs a cache-line exchange more.
// With shared cores it costs a context switch, so it pays only from larger sizes on.
constexpr uint32_t kSliceFromSpare = 8 << 10;
constexpr uint32_t kSliceFromShared = 64 << 10;

}  // namespace

Lobby::Lobby(base::EventLoop& loop, Jobs& jobs, submit::Quota& quota,
             const base::Disposer& disposer, const LobbyOptions& options, shm::Fd listener)
    : loop_(loop),
      jobs_(jobs),
      quota_(quota),
      options_(options),
      listener_(std::move(listener)),
      disposer_(disposer),
      takesDescriptors_(!options.refuseDescriptors || !shm::refuseDescriptors(listener_.get())) {
  RUEDA_CHECK(loop_.watch(listener_.get(), {kListener, 0}).isOk());
}

Lobby::~Lobby() {
  for (auto& [id, session] : sessions_) closeSocket(session->takeSocket(), std::nullopt);
}

// A descriptor that a client sent: closing it can take as long as the client likes.
void Lobby::close(shm::Fd fd) {
  if (takesDescriptors_) disposer_.take(std::make_shared<shm::Fd>(std::move(fd)));
}

// Closes a client's socket, which may hold descriptors that nobody has read, and gives its place in
// the quota back when that is done: else a client could fill the daemon with sockets.
void Lobby::closeSocket(shm::Fd socket, std::optional<uid_t> holder) {
  if (!takesDescriptors_) {
    if (holder) quota_.giveSession(*holder);
    return;
  }
  ::shutdown(socket.get(), SHUT_RDWR);  // The client need not wait for those before it.
  auto closing = std::make_shared<shm::Fd>(std::move(socket));
  if (holder) closing_.emplace_back(*holder, closing);
  disposer_.take(std::move(closing));
}

void Lobby::reapClosed() {
  const auto isClosed = [this](const auto& entry) {
    if (!entry.second.expired()) return false;
    quota_.giveSession(entry.first);
    return true;
  };
  closing_.erase(std::remove_if(closing_.begin(), closing_.end(), isClosed), closing_.end());
}

void Lobby::onReady(const base::Ready& ready, flow::TimePoint now) {
  if (ready.tag.kind == kListener) return acceptAll(now);
  Session* session = find(ready.tag.id);
  if (session == nullptr) return;  // Ended earlier in this turn.
  if (ready.tag.kind == kPidfd) {
    const flow::SessionId id = session->id();
    onSocket(session);  // Its goodbye may still be there to be read.
    session = find(id);
    if (session != nullptr)
      remove(id, Event::Kind::kLost, membership::exitCause(session->peer().pid, session->pidfd()));
    return;
  }
  if (ready.writable && session->flushOutbox())
    loop_.changeWatch(session->socket(), {kSocket, session->id()}, false);
  if (ready.readable || ready.hangup) onSocket(session);
}

// Out of descriptors: without a pause the listener would stay ready and keep the engine busy.
void Lobby::pauseListening(const Status& reason) {
  isListening_ = false;
  loop_.forget(listener_.get());
  uint64_t suppressed = 0;
  if (rejectLog_.allow(std::chrono::steady_clock::now(), &suppressed))
    base::logWarning("clients have to wait: " + reason.toString());
}

void Lobby::acceptAll(flow::TimePoint now) {
  for (int i = 0; i < kMaxAcceptsPerTurn; ++i) {
    auto socket = shm::acceptUnix(listener_.get());
    if (socket.status().code() == Code::kResourceExhausted) return pauseListening(socket.status());
    if (!socket.isOk()) return;
    const auto peer = shm::peerCredentials(socket.value().get());
    if (!peer.isOk()) {
      close(std::move(socket).value());
      continue;
    }
    const flow::SessionId id = nextSession_++;
    auto session = std::make_unique<Session>(id, std::move(socket).value(), peer.value(), now);
    Status allowed = quota_.takeSession(peer.value().uid);
    const bool hasQuota = allowed.isOk();
    if (options_.onlyOwnUid && peer.value().uid != ::geteuid() && peer.value().uid != 0)
      allowed = Status(Code::kPermissionDenied, "this private daemon serves uid " +
                                                    std::to_string(::geteuid()) + " only, not " +
                                                    std::to_string(peer.value().uid));
    if (allowed.isOk()) allowed = loop_.watch(session->socket(), {kSocket, id});
    if (!allowed.isOk()) {
      refuse(session.get(), allowed);
      closeSocket(session->takeSocket(), hasQuota ? std::optional(peer.value().uid) : std::nullopt);
      continue;
    }
    ++accepted;
    sessions_[id] = std::move(session);
  }
}

// A place that was left in this turn is free in the next, and a crowd must not hold up the jobs
// that run: making a session costs some hundred microseconds.
bool Lobby::mustGreetLater() const {
  const auto joined = std::count_if(events_.begin(), events_.end(), [](const Event& event) {
    return event.kind == Event::Kind::kJoined;
  });
  return joined >= kMaxGreetingsPerTurn ||
         std::any_of(events_.begin(), events_.end(), [](const Event& event) {
           return event.kind == Event::Kind::kLeft || event.kind == Event::Kind::kLost;
         });
}

void Lobby::onSocket(Session* session) {
  if (session->state == Session::State::kGreeting && mustGreetLater()) return;
  const flow::SessionId id = session->id();
  for (int i = 0; i < kMaxPacketsPerTurn; ++i) {
    shm::Packet packet;
    const auto got = shm::receivePacket(session->socket(), false, &packet);
    for (shm::Fd& fd : packet.fds) close(std::move(fd));
    if (!got.isOk()) return expel(id, got.status());
    if (got.value() == shm::ReceiveState::kWouldBlock) return;
    if (got.value() == shm::ReceiveState::kClosed)
      return remove(id, Event::Kind::kLost,
                    membership::exitCause(session->peer().pid, session->pidfd()));
    const Status handled = onPacket(session, packet);
    if (!handled.isOk()) return expel(id, handled);
    if (find(id) == nullptr) return;
  }
}

Status Lobby::onPacket(Session* session, const shm::Packet& packet) {
  if (session->state == Session::State::kGreeting) return onGreeting(session, packet);
  if (!packet.fds.empty()) return {Code::kProtocolError, "descriptors are only sent by the daemon"};
  switch (packet.type()) {
    case MessageType::kAllocSegment:
    case MessageType::kSegmentReady:
      return onSegment(session, packet);
    case MessageType::kGoodbye:
      remove(session->id(), Event::Kind::kLeft, "left");
      return Status::ok();
    default:
      break;  // Not our enum any more: a number from a peer.
  }
  return {Code::kProtocolError, "message type " + std::to_string(static_cast<int>(packet.type())) +
                                    " is not for the daemon"};
}

shm::Welcome Lobby::policyFor(const Job& job) const {
  auto welcome = shm::makeMessage<shm::Welcome>(MessageType::kWelcome);
  const bool spare = std::max(job.size, jobs_.totalRanks()) <= options_.cores;
  welcome.spareCores = spare ? 1 : 0;
  welcome.spinMicros = spare ? kSpinSpareMicros : kSpinSharedMicros;
  welcome.sliceFromBytes = spare ? kSliceFromSpare : kSliceFromShared;
  welcome.directEnabled = job.isolated || job.size < 2 ? 0 : 1;
  shm::copyText(welcome.daemon, sizeof welcome.daemon, shm::kVersion);
  return welcome;
}

Status Lobby::onGreeting(Session* session, const shm::Packet& packet) {
  if (draining_) return {Code::kUnavailable, "the daemon is draining, retry elsewhere or later"};
  RUEDA_ASSIGN_OR_RETURN(submit::Greeting greeting, submit::parseGreeting(packet));
  greeting.isolated |= options_.isolated;
  const auto joined = jobs_.join(*session, greeting);
  if (!joined.isOk()) jobs_.noteRefusal(session->peer().uid, greeting, joined.status());
  RUEDA_ASSIGN_OR_RETURN(Job* const job, joined);
  session->job = job->serial;
  session->state = Session::State::kJoined;
  if (job->policy.header.magic == 0) job->policy = policyFor(*job);
  shm::Welcome welcome = job->policy;
  welcome.protocol = greeting.protocol;
  RUEDA_RETURN_IF_ERROR(session->open(greeting, welcome, job->boards.fd()));
  if (session->pidfd() >= 0)
    RUEDA_RETURN_IF_ERROR(loop_.watch(session->pidfd(), {kPidfd, session->id()}));
  RUEDA_RETURN_IF_ERROR(loop_.watchEdges(session->doorbell(), {kDoorbell, session->id()}));
  job->formingNoticeAt = std::max(job->formingNoticeAt, session->since() + kFormingNoticeFirst);
  events_.push_back({Event::Kind::kJoined, session->id(), job->serial, greeting.rank, "", nullptr});
  if (job->ranksIn(Member::State::kAbsent).empty()) completeJob(job);
  return Status::ok();
}

void Lobby::completeJob(Job* job) {
  job->state = Job::State::kRunning;
  for (const Member& member : job->members)
    if (Session* session = find(member.session))
      (void)session->send(shm::makeMessage<shm::PlainMessage>(MessageType::kJobReady));
}

Status Lobby::onSegment(Session* session, const shm::Packet& packet) {
  const auto* message = packet.as<shm::SegmentMessage>(packet.type());
  if (message == nullptr) return {Code::kProtocolError, "segment message of a wrong size"};
  Job* job = jobs_.find(session->job);
  const int rank = session->greeting.rank;
  if (packet.type() == MessageType::kSegmentReady) {
    const auto it = job->segments.find(message->segment);
    if (it == job->segments.end() || it->second->rank != rank)
      return {Code::kProtocolError,
              "segment " + std::to_string(message->segment) + " is not this rank's"};
    if (!it->second->ready.exchange(true))
      events_.push_back(
          {Event::Kind::kSegmentReady, session->id(), job->serial, rank, "", it->second});
    return Status::ok();
  }
  auto grant = shm::makeMessage<shm::SegmentMessage>(MessageType::kSegmentGranted);
  auto segment = jobs_.addSegment(job, rank, message->bytes);
  if (segment.status().code() == Code::kProtocolError) return segment.status();
  grant.code = static_cast<int32_t>(segment.status().code());
  grant.rank = rank;
  grant.bytes = message->bytes;
  shm::copyText(grant.text, sizeof grant.text, segment.status().message());
  if (!segment.isOk()) return session->send(grant);
  grant.segment = segment.value()->id;
  return session->send(grant, segment.value());
}

void Lobby::refuse(Session* session, const Status& reason) {
  ++rejected;
  uint64_t suppressed = 0;
  if (rejectLog_.allow(std::chrono::steady_clock::now(), &suppressed))
    base::logWarning("refused pid " + std::to_string(session->peer().pid) + " of uid " +
                     std::to_string(session->peer().uid) + ": " + reason.toString() +
                     (suppressed > 0 ? " (and " + std::to_string(suppressed) + " more)" : ""));
  auto notice = shm::makeMessage<shm::Notice>(MessageType::kRefused);
  notice.code = static_cast<int32_t>(reason.code());
  notice.rank = -1;
  shm::copyText(notice.text, sizeof notice.text, reason.message());
  (void)session->send(notice);
}

void Lobby::expel(flow::SessionId id, const Status& reason) {
  Session* session = find(id);
  if (session == nullptr) return;
  refuse(session, reason);
  remove(id, Event::Kind::kLost, "was disconnected: " + reason.message());
}

void Lobby::remove(flow::SessionId id, Event::Kind how, const std::string& cause) {
  const auto it = sessions_.find(id);
  Session* session = it->second.get();
  loop_.forget(session->socket());
  if (session->state == Session::State::kJoined) {
    if (session->pidfd() >= 0) loop_.forget(session->pidfd());
    if (session->doorbell() >= 0) loop_.forget(session->doorbell());
    events_.push_back({how, id, session->job, session->greeting.rank, cause, nullptr});
  }
  closeSocket(session->takeSocket(), session->peer().uid);
  sessions_.erase(it);
}

Session* Lobby::find(flow::SessionId id) {
  const auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : it->second.get();
}

void Lobby::notify(flow::SessionId id, const shm::Notice& notice) {
  Session* session = find(id);
  if (session == nullptr) return;
  (void)session->send(notice);
  if (session->hasOutbox()) loop_.changeWatch(session->socket(), {kSocket, id}, true);
}

bool Lobby::needsTick() const {
  return !isListening_ || !closing_.empty() ||
         std::any_of(sessions_.begin(), sessions_.end(), [](const auto& entry) {
           return entry.second->state == Session::State::kGreeting || entry.second->hasOutbox();
         });
}

void Lobby::tick(flow::TimePoint now) {
  reapClosed();
  if (!isListening_) isListening_ = loop_.watch(listener_.get(), {kListener, 0}).isOk();
  std::vector<flow::SessionId> late;
  for (const auto& [id, session] : sessions_) {
    if (session->hasOutbox()) loop_.changeWatch(session->socket(), {kSocket, id}, true);
    if (session->state == Session::State::kGreeting &&
        now - session->since() > milliseconds(options_.handshakeTimeoutMs))
      late.push_back(id);
  }
  for (const flow::SessionId id : late)
    expel(id,
          Status(Code::kDeadlineExceeded, "no complete hello within " +
                                              std::to_string(options_.handshakeTimeoutMs) + " ms"));
  for (auto& [serial, job] : jobs_.all())
    if (job->state == Job::State::kForming) tickForming(job.get(), now);
}

void Lobby::tickForming(Job* job, flow::TimePoint now) {
  for (const Member& member : job->members) {
    Session* session = member.state == Member::State::kRunning ? find(member.session) : nullptr;
    if (session == nullptr) continue;
    const auto limit = milliseconds(session->greeting.startTimeoutMs);
    if (now - session->since() > limit)
      expel(session->id(),
            Status(Code::kDeadlineExceeded,
                   "job '" + base::printable(job->id) + "': " +
                       job->describeAbsent(" within " + std::to_string(limit.count()) + " ms")));
  }
  if (now < job->formingNoticeAt) return;
  job->formingNoticeAt = now + kFormingNoticeNext;
  auto notice = shm::makeMessage<shm::Notice>(MessageType::kFormingNotice);
  shm::copyText(notice.text, sizeof notice.text, "waiting: " + job->describeAbsent(""));
  for (const Member& member : job->members)
    if (member.state == Member::State::kRunning) notify(member.session, notice);
}

}  // namespace rueda::engine
