// SPDX-License-Identifier: Apache-2.0
#pragma once

// The daemon's side of the Unix sockets: accepts clients, greets them, seats them in jobs, makes
// their segments, and notices when they go. The only owner of sessions. What happens to jobs is
// told as events, which the engine acts on. Engine thread.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/event_loop.h"
#include "daemon/base/log.h"
#include "daemon/engine/jobs.h"

namespace rueda::engine {

// Tags of descriptors in the engine's loop; `id` is the session where it has one.
enum WatchKind : uint32_t { kListener, kSocket, kPidfd, kDoorbell, kMailbox, kLifeline };

struct LobbyOptions {
  uint32_t handshakeTimeoutMs = 2000;
  bool isolated = false;          // Every job is.
  bool onlyOwnUid = false;        // A private daemon.
  bool refuseDescriptors = true;  // Where the kernel can; false makes it like an older one.
  int cores = 1;
};

class Lobby {
 public:
  struct Event {
    enum class Kind { kJoined, kLeft, kLost, kSegmentReady };
    Kind kind = Kind::kLost;
    flow::SessionId session = 0;
    flow::JobSerial job = 0;
    int rank = 0;
    std::string cause;                       // kLost
    std::shared_ptr<flow::Segment> segment;  // kSegmentReady
  };

  // All references outlive the lobby.
  Lobby(base::EventLoop& loop, Jobs& jobs, submit::Quota& quota, const base::Disposer& disposer,
        const LobbyOptions& options, shm::Fd listener);
  ~Lobby();

  // Handles readiness of a listener, socket or pidfd; anything else is not for the lobby.
  void onReady(const base::Ready& ready, flow::TimePoint now);
  // Deadlines: greetings that do not come, jobs that do not fill.
  void tick(flow::TimePoint now);
  bool hasEvents() const { return !events_.empty(); }
  std::vector<Event> takeEvents() { return std::exchange(events_, {}); }

  submit::Session* find(flow::SessionId id);
  // Ends a session that broke the contract; its client is told `reason`.
  void expel(flow::SessionId id, const shm::Status& reason);
  void notify(flow::SessionId id, const shm::Notice& notice);
  // New clients are refused from now on.
  void startDraining() { draining_ = true; }
  bool draining() const { return draining_; }
  size_t sessionCount() const { return sessions_.size(); }
  bool needsTick() const;

  uint64_t accepted = 0;
  uint64_t rejected = 0;

  using Sessions = std::map<flow::SessionId, std::unique_ptr<submit::Session>>;
  const Sessions& sessions() const { return sessions_; }

 private:
  void acceptAll(flow::TimePoint now);
  void pauseListening(const shm::Status& reason);
  void onSocket(submit::Session* session);
  bool mustGreetLater() const;
  shm::Status onPacket(submit::Session* session, const shm::Packet& packet);
  shm::Status onGreeting(submit::Session* session, const shm::Packet& packet);
  shm::Status onSegment(submit::Session* session, const shm::Packet& packet);
  void completeJob(Job* job);
  void refuse(submit::Session* session, const shm::Status& reason);
  void close(shm::Fd fd);
  void closeSocket(shm::Fd socket, std::optional<uid_t> holder);
  void reapClosed();
  void remove(flow::SessionId id, Event::Kind how, const std::string& cause);
  void tickForming(Job* job, flow::TimePoint now);
  shm::Welcome policyFor(const Job& job) const;

  base::EventLoop& loop_;
  Jobs& jobs_;
  submit::Quota& quota_;
  const LobbyOptions options_;
  shm::Fd listener_;
  const base::Disposer& disposer_;
  const bool takesDescriptors_;  // The kernel cannot keep them from us.
  std::vector<std::pair<uid_t, std::weak_ptr<shm::Fd>>> closing_;  // Sockets, by who had them.
  Sessions sessions_;
  std::vector<Event> events_;
  flow::SessionId nextSession_ = 1;
  bool draining_ = false;
  bool isListening_ = true;
  base::RateLimit rejectLog_{std::chrono::milliseconds(1000)};
};

}  // namespace rueda::engine
