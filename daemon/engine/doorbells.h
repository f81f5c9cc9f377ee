// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whose submission rings are looked at in a turn, and what clients are told when the engine sleeps:
// the daemon's half of the rules in shm/README.md, "Sleeping". Engine thread.

#include <optional>
#include <vector>

#include "daemon/engine/lobby.h"

namespace rueda::engine {

class Doorbells {
 public:
  // Both outlive this.
  Doorbells(Lobby& lobby, Jobs& jobs) : lobby_(lobby), jobs_(jobs) {}

  // The client has written its doorbell, or is to be looked at for another reason.
  void wake(flow::SessionId id);
  // Every client: a status must not miss what nobody was woken for.
  void wakeAll();

  // The sessions to drain now: those that rang, and ranks of their jobs that have written without.
  std::vector<flow::SessionId> takeTurn();

  // Ranks that an operation of `job` waits for must ring from now on. After each change of what
  // waits.
  void tellWanted(const Job& job);

  // Tells clients that the engine sleeps, then looks once more: pairs with the client's
  // publish-then-read. How long the engine may sleep: zero if there is something to read already,
  // no limit if nothing will come unannounced.
  std::optional<std::chrono::microseconds> announceSleep(flow::TimePoint now);

  // The session has started an operation that it does not wait for yet; `among` others.
  static void noteStart(submit::Session* session, bool among, flow::TimePoint now);

 private:
  bool wants(const submit::Session& session) const;
  // How long what its client starts may lie unseen; zero if not at all.
  std::chrono::microseconds nap(const submit::Session& session, flow::TimePoint now) const;

  Lobby& lobby_;
  Jobs& jobs_;
  std::vector<flow::SessionId> awake_;  // Sessions with isAwake; some may have ended.
};

}  // namespace rueda::engine
