// SPDX-License-Identifier: Apache-2.0
#pragma once

// One rank of one job: it checks an operation and chooses its way, which is alone, on a board with
// the other ranks, or through the daemon. All members may be called from any thread; the destructor
// when no other call is running.

#include <memory>
#include <vector>

#include "client/cpp/direct_paths.h"
#include "client/cpp/ring_path.h"

namespace rueda::client {

class Client {
 public:
  // Connects and waits for the job's ranks. Blocking.
  static shm::Result<std::unique_ptr<Client>> open(const Options& options);
  ~Client();

  Memory& memory() { return memory_; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  bool isForked() const { return connection_->isForked(); }
  // What ended the session, or ok.
  shm::Status health();

  // Runs one operation and returns with its result in op.output or *op.result. Blocking.
  shm::Status run(const Operation& op);
  // Starts operations; more than one form a group. handles[i] for ops[i].
  shm::Status submit(const std::vector<Operation>& ops, std::vector<uint64_t>* handles) {
    return ring_.submit(ops, handles);
  }
  shm::Result<bool> poll(uint64_t handle) { return ring_.poll(handle); }
  // Waits for the outcome; `timeout` zero: no limit. Blocking.
  shm::Status wait(uint64_t handle, std::chrono::milliseconds timeout) {
    return ring_.wait(handle, timeout);
  }
  // The id of a new process set of these ranks, on which all ranks agree. Blocking, as the two
  // below. kAlreadyExists: there is one of them.
  shm::Result<uint32_t> addProcessSet(std::vector<int64_t> ranks);
  // What waits in it fails. All ranks of the job.
  shm::Status removeProcessSet(uint32_t set);
  // This rank has no more data: other ranks of the set go on until all have joined, with zeros in
  // its place or (`leftOut`) without it. Returns the rank that joined last.
  shm::Result<int> join(uint32_t set, bool leftOut);
  // If waited for, until release(); else nullptr.
  const Gathered* gathered(uint64_t handle) { return ring_.gathered(handle); }
  shm::Status release(uint64_t handle) { return ring_.release(handle); }
  // Timeline's, on rank 0 alone. kInvalidArgument if Options::timeline is empty.
  shm::Status startTimeline(const std::string& path, bool marksCycles);
  shm::Status stopTimeline();

 private:
  Client(const Options& options, std::unique_ptr<Connection> connection);
  std::optional<shm::Status> runDirect(const Operation& op, DirectPath* path,
                                       DirectPath::Attempt* attempt);
  std::optional<shm::Status> runOnBoard(const Operation& op, DirectPath* path,
                                        DirectPath::Attempt* attempt);
  shm::Result<int64_t> agree(Submission submission);

  const Options options_;
  const std::unique_ptr<Connection> connection_;
  Memory memory_;
  Patience patience_;
  ProcessSets sets_;
  Timeline timeline_;
  FlightTimer timer_;
  RingPath ring_;
  DirectPaths directs_;
};

}  // namespace rueda::client
