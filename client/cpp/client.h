// SPDX-License-Identifier: Apache-2.0
#pragma once

// One rank of one job: memory, blocking and asynchronous collectives. All members may be called
// from any thread; the destructor when no other call is running.

#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "client/cpp/check.h"
#include "client/cpp/direct_paths.h"
#include "client/cpp/memory.h"
#include "client/cpp/submitter.h"
#include "client/cpp/timeline.h"

namespace rueda::client {

// Rows of all ranks, one behind the other.
struct Gathered {
  const char* data = nullptr;
  uint64_t bytes = 0;
  std::vector<int64_t> firstDims;  // By rank.
};

class Client : private WaitNotes {
 public:
  // Connects and waits for the job's ranks. Blocking.
  static shm::Result<std::unique_ptr<Client>> open(const Options& options);
  ~Client() override;

  Memory& memory() { return memory_; }
  int rank() const { return options_.rank; }
  int size() const { return options_.size; }
  bool isForked() const { return connection_->isForked(); }
  // What ended the session, or ok.
  shm::Status health();

  // Runs one operation and returns with its result in op.output or *op.result. Blocking.
  shm::Status run(const Operation& op);
  // Starts operations; more than one form a group. handles[i] for ops[i].
  shm::Status submit(const std::vector<Operation>& ops, std::vector<uint64_t>* handles);
  shm::Result<bool> poll(uint64_t handle);
  // Waits for the outcome; `timeout` zero: no limit. Blocking.
  shm::Status wait(uint64_t handle, std::chrono::milliseconds timeout);
  // The id of a new process set of these ranks, on which all ranks agree. Blocking, as the two
  // below. kAlreadyExists: there is one of them.
  shm::Result<uint32_t> addProcessSet(std::vector<int64_t> ranks);
  // What waits in it fails. All ranks of the job.
  shm::Status removeProcessSet(uint32_t set);
  // This rank has no more data: other ranks of the set go on until all have joined, with zeros in
  // its place or (`leftOut`) without it. Returns the rank that joined last.
  shm::Result<int> join(uint32_t set, bool leftOut);
  const Gathered* gathered(uint64_t handle);  // If waited for, until release(); else nullptr.
  shm::Status release(uint64_t handle);
  // Timeline's, on rank 0 alone. kInvalidArgument if Options::timeline is empty.
  shm::Status startTimeline(const std::string& path, bool marksCycles);
  shm::Status stopTimeline();

 private:
  // An operation on its way. Guarded by mutex_.
  struct Flight {
    shm::OpKind kind = shm::OpKind::kAllreduce;
    std::string name;
    uint32_t set = 0;
    bool isNamed = true;  // Not a copy of gathered rows.
    bool done = false;
    // The direct path that gave it back, or nullptr. Its thread keeps it alive.
    DirectPath* detour = nullptr;
    shm::Status status;
    int64_t value = 0;             // Of an agreement.
    char* block = nullptr;         // Arena block that stands in for foreign memory, or nullptr.
    void* copyTo = nullptr;        // Foreign output that gets the block's bytes.
    const char* result = nullptr;  // Where in the block they lie.
    uint64_t resultBytes = 0;
    // Of a gathering kind.
    void* output = nullptr;  // Where the caller wants the rows; nullptr: in a block.
    uint64_t outputRoom = 0;
    uint64_t rowBytes = 0;  // Of one row.
    std::vector<shm::RowBlock> rows;
    std::unique_ptr<Gathered> gathered;
    char* gatheredBlock = nullptr;
    std::unique_ptr<TimedOperation> timed;  // Until it is recorded.
  };

  Client(const Options& options, std::unique_ptr<Connection> connection);
  // A name is one of its process set.
  static std::string keyOf(std::string_view name, uint32_t set) {
    return set == 0 ? std::string(name) : std::string(name) + '\0' + std::to_string(set);
  }
  shm::Status runAlone(const Operation& op);
  shm::Status gatherAlone(const Operation& op);
  shm::Result<int64_t> agree(Submission submission);
  shm::Status runSubmission(const Operation& op, Submission* submission, DirectPath* detour,
                            int64_t* value);
  Operation placed(const Operation& op) const;
  std::optional<shm::Status> runDirect(const Operation& op, DirectPath* path,
                                       DirectPath::Attempt* attempt);
  shm::Status await(uint64_t handle, std::chrono::milliseconds timeout, int64_t* value);
  shm::Status placeMemory(const Operation& op, Flight* flight, Submission* submission);
  // Registers one operation: id, name, blocks for foreign memory, copies in.
  shm::Status prepare(const Operation& op, Submission* submission, DirectPath* detour = nullptr);
  // An operation that was never submitted gives back what peers would have read, too.
  void forget(uint64_t id, bool neverSubmitted = false);
  void freeGatherInput(uint64_t id);
  void drainCompletions();
  void takeCompletion(const shm::CompletionEntry& entry, const std::vector<char>& tail);
  bool isDone(uint64_t id);
  shm::Status finishGather(uint64_t id);
  shm::Status fetchRows(uint64_t id, const char* to, uint64_t bytes);
  shm::Status copyRows(const std::vector<shm::RowBlock>& rows, uint64_t rowBytes, char* to);
  shm::Status collectRows(uint64_t id);
  void giveRows(const Operation& op, uint64_t id);
  bool hasRoom();
  static shm::Status unknownHandle(uint64_t handle);
  void stamp(const Operation& op, Flight* flight, Submission* submission) const;
  static void copyOut(Flight* flight);
  void noteCollected(uint64_t id, int64_t begin, const shm::Status& collected);
  void recordTimed(Flight* flight);

  uint64_t sleepsInDirect(const Operation& op, uint32_t index) override;
  void wokeFromDirect(uint64_t wait) override;
  void leaveBoard(uint32_t set);

  // Constant.
  const Options options_;
  const std::unique_ptr<Connection> connection_;
  // Own locks.
  Memory memory_;
  Patience patience_;
  Submitter submitter_;
  ProcessSets sets_;
  DirectPaths directs_;
  Timeline timeline_;
  std::mutex mutex_;  // Guards the rest.
  shm::RingConsumer completions_;
  std::unordered_map<uint64_t, Flight> flights_;
  std::unordered_set<std::string> names_;             // By keyOf; without an outcome yet.
  std::unordered_map<uint64_t, char*> gatherInputs_;  // Blocks that peers may still read.
  uint64_t nextId_ = 1;
  uint32_t nextGroup_ = 1;
  std::atomic<size_t> nameCount_{0};  // Of names_; read without the lock.
};

}  // namespace rueda::client
