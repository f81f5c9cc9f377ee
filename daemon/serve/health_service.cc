// SPDX-License-Identifier: Apache-2.0
#include "daemon/serve/health_service.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <string_view>

#include "daemon/base/mutex.h"
#include "daemon/rpc/grpc_status.h"
#include "proto/health.grpc.pb.h"

namespace rueda::serve {
namespace {

namespace wire = grpc::health::v1;

// Watchers are probers: a handful per host. Each costs the engine nothing beyond the shared
// snapshots, and the daemon a few kilobytes.
constexpr int kMaxWatchers = 64;

constexpr std::array<std::string_view, 4> kParts = {"ipc", "engine", "workers", "memory"};

wire::HealthCheckResponse::ServingStatus toWire(Health health) {
  switch (health) {
    case Health::kUnknown:
      return wire::HealthCheckResponse::UNKNOWN;
    case Health::kServing:
      return wire::HealthCheckResponse::SERVING;
    case Health::kNotServing:
      return wire::HealthCheckResponse::NOT_SERVING;
    case Health::kNoSuchService:
      return wire::HealthCheckResponse::SERVICE_UNKNOWN;
  }
  return wire::HealthCheckResponse::UNKNOWN;
}

// One watcher. At any moment exactly one of these is outstanding: a request to the feed, a write,
// or the alarm; each one's end starts the next, so only onCancel runs beside them. Deletes itself.
class Watcher final : public grpc::ServerWriteReactor<wire::HealthCheckResponse> {
 public:
  Watcher(SnapshotFeed& feed, std::chrono::milliseconds interval, std::atomic<int>* watchers,
          std::string service)
      : feed_(feed), interval_(interval), watchers_(watchers), service_(std::move(service)) {
    if (watchers_->fetch_add(1, std::memory_order_relaxed) >= kMaxWatchers) {
      Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "too many health watchers"});
    } else {
      ask();
    }
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      sleep();
    } else {
      Finish(grpc::Status::CANCELLED);
    }
  }

  void OnCancel() override {
    base::MutexLock lock(mutex_);
    cancelled_ = true;
    if (asleep_) alarm_->Cancel();
  }

  void OnDone() override {
    watchers_->fetch_sub(1, std::memory_order_relaxed);
    delete this;
  }

 private:
  ~Watcher() override = default;

  void ask() {
    feed_.request([this](const SnapshotFeed::Snapshot& snapshot) { tell(snapshot); });
  }

  void tell(const SnapshotFeed::Snapshot& snapshot) {
    // The feed refuses only when it stops or is overrun: the watcher has to come again.
    const shm::Code code = snapshot.status().code();
    if (code == shm::Code::kUnavailable || code == shm::Code::kResourceExhausted) {
      Finish(rpc::toGrpc(snapshot.status()));
      return;
    }
    const wire::HealthCheckResponse::ServingStatus now = toWire(healthOf(snapshot, service_));
    if (told_ == now) {
      sleep();
      return;
    }
    told_ = now;
    response_.set_status(now);
    StartWrite(&response_);
  }

  void sleep() {
    bool cancelled = false;
    {
      base::MutexLock lock(mutex_);
      cancelled = cancelled_;
      if (!cancelled) {
        asleep_ = true;
        // A new one, since the last may still be returning from wake(). Alarm's own assignment
        // leaks.
        alarm_.emplace();
        alarm_->Set(std::chrono::system_clock::now() + interval_, [this](bool) { wake(); });
      }
    }
    if (cancelled) Finish(grpc::Status::CANCELLED);
  }

  void wake() {
    bool cancelled = false;
    {
      base::MutexLock lock(mutex_);
      asleep_ = false;
      cancelled = cancelled_;
    }
    if (cancelled) {
      Finish(grpc::Status::CANCELLED);
    } else {
      ask();
    }
  }

  SnapshotFeed& feed_;
  const std::chrono::milliseconds interval_;
  std::atomic<int>* const watchers_;  // A count only: orders nothing.
  const std::string service_;

  std::optional<wire::HealthCheckResponse::ServingStatus> told_;
  wire::HealthCheckResponse response_;

  // Held while the alarm is set or cancelled: gRPC calls back on threads of its own.
  base::Mutex mutex_;
  bool cancelled_ RUEDA_GUARDED_BY(mutex_) = false;
  bool asleep_ RUEDA_GUARDED_BY(mutex_) = false;
  std::optional<grpc::Alarm> alarm_ RUEDA_GUARDED_BY(mutex_);
};

class HealthService final : public wire::Health::CallbackService {
 public:
  HealthService(SnapshotFeed& feed, std::chrono::milliseconds watchInterval)
      : feed_(feed), watchInterval_(watchInterval) {}

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const wire::HealthCheckRequest* request,
                                  wire::HealthCheckResponse* response) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    feed_.request([reactor, request, response](const SnapshotFeed::Snapshot& snapshot) {
      const Health health = healthOf(snapshot, request->service());
      if (health == Health::kNoSuchService) {
        reactor->Finish({grpc::StatusCode::NOT_FOUND, "no such service or part"});
        return;
      }
      response->set_status(toWire(health));
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  grpc::ServerWriteReactor<wire::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* /*context*/, const wire::HealthCheckRequest* request) override {
    return new Watcher(feed_, watchInterval_, &watchers_, request->service());
  }

 private:
  SnapshotFeed& feed_;
  const std::chrono::milliseconds watchInterval_;
  std::atomic<int> watchers_{0};
};

}  // namespace

Health healthOf(const SnapshotFeed::Snapshot& snapshot, const std::string& service) {
  const bool overall = service.empty() || service == "rueda.v1.Status";
  if (!snapshot.isOk()) {
    if (overall || service == "engine") return Health::kNotServing;
    const bool known = std::find(kParts.begin(), kParts.end(), service) != kParts.end();
    return known ? Health::kUnknown : Health::kNoSuchService;
  }
  bool serving = true;
  bool found = overall || service == "engine";  // It has just answered.
  for (const flow::HealthPart& part : snapshot.value().health) {
    if (!overall && part.name != service) continue;
    found = true;
    serving = serving && part.serving;
  }
  if (!found) return Health::kNoSuchService;
  return serving ? Health::kServing : Health::kNotServing;
}

std::unique_ptr<grpc::Service> makeHealthService(SnapshotFeed& feed,
                                                 std::chrono::milliseconds watchInterval) {
  return std::make_unique<HealthService>(feed, watchInterval);
}

}  // namespace rueda::serve
