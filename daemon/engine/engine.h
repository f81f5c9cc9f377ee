// SPDX-License-Identifier: Apache-2.0
#pragma once

// The cycle: drain submissions, negotiate, fuse, dispatch, deliver. One thread (the one in run())
// owns all sessions, jobs and rings; others post commands. The only place that knows two steps.

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/mailbox.h"
#include "daemon/complete/delivery.h"
#include "daemon/engine/doorbells.h"
#include "daemon/engine/times.h"
#include "daemon/execute/cpu/shm_plane.h"
#include "daemon/flow/engine_port.h"
#include "daemon/submit/intake.h"

namespace rueda::engine {

// How often the engine looks at the clock while something waits.
constexpr std::chrono::milliseconds kTick{100};

struct EngineOptions {
  LobbyOptions lobby;
  submit::QuotaLimits quota;
  JobSettings job;  // For what a job does not ask for itself.
  bool endWithLastClient = false;
  int lifelineFd = -1;  // With endWithLastClient: not before this pipe has closed.
  std::string socket;   // For the status only.
};

class Engine : public flow::EnginePort {
 public:
  // `pool` outlives the engine; its work may call back until the pool is destroyed.
  Engine(const EngineOptions& options, shm::Fd listener, execute::WorkerPool& pool);
  ~Engine() override;

  // Runs the cycle until it is stopped or, if so configured, the last client has gone.
  void run();

  // Any thread. New clients are refused; the cycle ends when no job is left or `drain` is over. A
  // second call ends it at once.
  void requestStop(std::chrono::seconds drain);
  shm::Result<flow::StateView> snapshot(std::chrono::milliseconds timeout) override;

 private:
  void turn();
  void advanceTouched();
  void touchDueCycles();
  std::optional<std::chrono::microseconds> sleepLimit();
  void handleReady(const base::Ready& ready);
  void handleLobbyEvents();
  void handleTick();
  void configure(Job* job, const shm::Knobs& knobs);
  void loseRank(Job* job, const Lobby::Event& event, std::vector<flow::Outcome>* outcomes);
  void shareSegment(Job* job, const std::shared_ptr<flow::Segment>& segment);
  bool shouldEnd() const;
  void endAllJobs(const std::string& why);

  // The five steps.
  void drainSubmissions();
  void drainSession(submit::Session* session);
  void acceptItem(submit::Session* session, Job* job, submit::Item item);
  void acceptRequest(submit::Session* session, Job* job, flow::Request request);
  void acceptNote(submit::Session* session, Job* job, const submit::WaitNote& note);
  void acceptRelease(Job* job, int rank, uint64_t requestId);
  void acceptFetch(submit::Session* session, Job* job, submit::Fetch fetch);
  void negotiateAndDispatch(Job* job);
  void finishAgreement(Job* job, const flow::Decision& decision);
  void failRequests(Job* job, const std::vector<flow::Request>& requests,
                    const shm::Status& status);
  static std::optional<uint32_t> resumeIndex(const flow::Decision& decision);
  void finishGather(Job* job, flow::Decision decision);
  void dispatch(Job* job, flow::FusedOp op);
  void onExecuted(const std::shared_ptr<const flow::FusedOp>& op, flow::TimePoint at);
  // `span`: nullptr if it did not go to the data plane.
  void endDecision(Job* job, const flow::Decision& decision, const shm::Status& status,
                   int64_t value = 0, const Span* span = nullptr);
  void deliver(flow::Outcome outcome);
  void deliverAll();

  // Runs `command` on the engine thread: at once when called there, else in its next turn.
  void post(std::function<void()> command);
  flow::StateView view(flow::TimePoint now) const;
  flow::JobView viewOf(const Job& job, flow::TimePoint now) const;

  const EngineOptions options_;
  execute::WorkerPool& pool_;
  execute::ShmPlane plane_;
  base::EventLoop loop_;
  base::Mailbox<std::function<void()>> mailbox_;
  submit::Quota quota_;
  const base::Disposer memoryDisposer_{true};
  const base::Disposer descriptorDisposer_;  // Of its own: strangers decide how long it takes.
  Jobs jobs_;
  Lobby lobby_;
  Doorbells doorbells_;
  complete::Delivery delivery_;
  std::vector<flow::JobSerial> touched_;  // Jobs with news in this turn.
  std::vector<std::shared_ptr<std::promise<flow::StateView>>> asked_;  // For after this turn.
  std::atomic<std::thread::id> thread_{};                              // Of run(); set once.
  const flow::TimePoint startedAt_;
  flow::TimePoint now_;
  flow::TimePoint nextTick_;
  std::optional<flow::TimePoint> stopBy_;
  bool lifelineClosed_ = true;
  bool hadClient_ = false;
  bool ended_ = false;
  uint64_t ranksLost_ = 0;
};

}  // namespace rueda::engine
