// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/timeline.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/trace_file.h"

namespace rueda::client {

using shm::Code;
using shm::Result;
using shm::Status;

namespace {

constexpr std::chrono::seconds kLook{1};  // Only so that no wait is without an end.
constexpr size_t kEventsAtOnce = 1000;    // In memory as text.

// The process's handlers are for its own threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

void logTimeline(const std::string& text) { std::fprintf(stderr, "rueda: %s\n", text.c_str()); }

struct Timeline::Writer {
  Writer(TraceFile traceFile, const TraceEvents& traceEvents, std::string path,
         std::atomic<bool>* isRunning)
      : file(std::move(traceFile)),
        events(traceEvents),
        path(std::move(path)),
        isRunning(isRunning) {}

  void push(TimedOperation operation);
  void run();
  void write(const std::vector<TimedOperation>& operations);
  void giveUpOn(const Status& status);

  // Of the thread.
  TraceFile file;
  TraceEvents events;
  const std::string path;
  std::atomic<bool>* const isRunning;
  bool hasFailed = false;
  // Guarded by mutex.
  std::mutex mutex;
  std::condition_variable news;
  std::vector<TimedOperation> queue;
  uint64_t dropped = 0;
  bool isEnding = false;

  std::thread thread;
};

void Timeline::Writer::push(TimedOperation operation) {
  bool wasEmpty = false;
  bool isFirstDropped = false;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    wasEmpty = queue.empty();
    if (queue.size() < kMaxQueued)
      queue.push_back(std::move(operation));
    else
      isFirstDropped = ++dropped == 1;
  }
  if (wasEmpty) news.notify_one();
  if (isFirstDropped)
    logTimeline("the timeline '" + path + "' has gaps: operations end faster than it is written");
}

void Timeline::Writer::run() {
  bool isOver = false;
  while (!isOver) {
    std::vector<TimedOperation> operations;
    {
      std::unique_lock<std::mutex> lock(mutex);
      news.wait_for(lock, kLook, [this] { return isEnding || !queue.empty(); });
      operations.swap(queue);
      isOver = isEnding;
    }
    try {
      write(operations);
    } catch (const std::bad_alloc&) {
      giveUpOn({Code::kResourceExhausted, "out of memory"});
    }
  }
  if (!hasFailed) giveUpOn(file.finish());
}

void Timeline::Writer::write(const std::vector<TimedOperation>& operations) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < operations.size() && !hasFailed; ++i) {
    for (std::string& text : events.of(operations[i])) texts.push_back(std::move(text));
    if (texts.size() < kEventsAtOnce && i + 1 < operations.size()) continue;
    giveUpOn(file.add(texts));
    texts.clear();
  }
}

void Timeline::Writer::giveUpOn(const Status& status) {
  if (status.isOk()) return;
  hasFailed = true;
  isRunning->store(false, std::memory_order_relaxed);
  logTimeline(status.message() + "; it ends here");
}

Timeline::Timeline() = default;
Timeline::~Timeline() {
  if (writer_ != nullptr) end();
}

Status Timeline::start(const std::string& path, bool marksCycles) {
  const std::lock_guard<std::mutex> switching(switching_);
  if (isRunning()) {
    logTimeline("a timeline runs already; '" + path + "' is not started");
    return Status::ok();
  }
  end();  // One that a failed write has ended.
  RUEDA_ASSIGN_OR_RETURN(TraceFile file, TraceFile::create(path));
  using std::chrono::system_clock;
  const auto epoch =
      std::chrono::duration_cast<std::chrono::microseconds>(system_clock::now().time_since_epoch());
  const TraceEvents events(shm::nanosOf(std::chrono::steady_clock::now()), epoch.count(),
                           marksCycles);
  RUEDA_RETURN_IF_ERROR(file.add(events.begin()));
  auto writer = std::make_unique<Writer>(std::move(file), events, path, &isRunning_);
  {
    const SignalsBlocked blocked;
    writer->thread = std::thread([w = writer.get()] { w->run(); });
  }
  pthread_setname_np(writer->thread.native_handle(), "rueda-timeline");
  const std::lock_guard<std::mutex> lock(mutex_);
  writer_ = std::move(writer);
  isRunning_.store(true, std::memory_order_relaxed);
  return Status::ok();
}

void Timeline::stop() {
  const std::lock_guard<std::mutex> switching(switching_);
  if (!end()) logTimeline("there is no timeline to stop");
}

// Whether there was one. Waits for the disk, but lets nobody who records wait.
bool Timeline::end() {
  isRunning_.store(false, std::memory_order_relaxed);
  std::unique_ptr<Writer> writer;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    writer = std::move(writer_);
  }
  if (writer == nullptr) return false;
  {
    const std::lock_guard<std::mutex> lock(writer->mutex);
    writer->isEnding = true;
  }
  writer->news.notify_one();
  writer->thread.join();
  return true;
}

void Timeline::leaveToParent() {
  isRunning_.store(false, std::memory_order_relaxed);
  (void)writer_.release();
}

void Timeline::record(TimedOperation operation) {
  if (!isRunning()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (writer_ != nullptr) writer_->push(std::move(operation));
}

}  // namespace rueda::client
