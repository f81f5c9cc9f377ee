// SPDX-License-Identifier: Apache-2.0
// The C ABI over the C++ client: checks arguments, lets no exception pass, keeps the last error of
// each thread.
#include "client/c/rueda.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "shm/unix_socket.h"
#include "shm/version.h"

using rueda::client::Client;
using rueda::client::Operation;
using rueda::client::Options;
using rueda::shm::Code;
using rueda::shm::OpKind;
using rueda::shm::Status;

struct rueda_session {
  std::unique_ptr<Client> client;
};

namespace {

thread_local std::string lastError;

int32_t report(const Status& status) {
  if (status.isOk()) return RUEDA_OK;
  lastError = status.message();
  return static_cast<int32_t>(status.code());
}

int32_t invalid(const char* text) { return report({Code::kInvalidArgument, text}); }

// Runs a call body: third-party exceptions (out of memory, threads) become codes.
template <typename Body>
int32_t guarded(const Body& body) {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report({Code::kResourceExhausted, "out of memory"});
  } catch (const std::exception& error) {
    return report({Code::kInternal, error.what()});
  }
}

Status checkSession(const rueda_session* session) {
  if (session == nullptr)
    return {Code::kNotInitialized, "no session: rueda_open has not succeeded"};
  if (session->client->isForked())
    return {Code::kNotInitialized,
            "this process was forked from the one that opened the session; open one of its own"};
  return Status::ok();
}

// The caller's struct as this version knows it: the struct itself, or for an older caller `copy`,
// with zero for the fields that it lacks. nullptr if its size is not set.
template <typename T>
const T* ofThisVersion(const T* from, T* copy) {
  if (from == nullptr || from->struct_size < offsetof(T, struct_size) + sizeof from->struct_size)
    return nullptr;
  if (from->struct_size >= sizeof *from) return from;
  std::memset(static_cast<void*>(copy), 0, sizeof *copy);
  std::memcpy(static_cast<void*>(copy), from, from->struct_size);
  return copy;
}

Status sizeNotSet() { return {Code::kInvalidArgument, "struct_size is not set"}; }

Status countElements(const rueda_op& raw, Operation* op) {
  op->count = 1;
  for (uint32_t i = 0; i < raw.ndim; ++i) {
    const int64_t dim = raw.shape[i];
    if (dim < 0 || (dim > 0 && op->count > rueda::shm::kMaxElements / static_cast<uint64_t>(dim)))
      return {Code::kInvalidArgument, "'" + std::string(op->name) + "': dimension " +
                                          std::to_string(i) + " is " + std::to_string(dim)};
    op->count *= static_cast<uint64_t>(dim);
  }
  return Status::ok();
}

Status toOperation(const rueda_op* from, Operation* op) {
  rueda_op copy;
  const rueda_op* const known = ofThisVersion(from, &copy);
  if (known == nullptr) return sizeNotSet();
  const rueda_op& raw = *known;
  const auto kind = rueda::shm::opKindFromWire(raw.kind);
  const auto dtype = rueda::shm::dtypeFromWire(raw.dtype);
  const auto reduceOp = rueda::shm::reduceOpFromWire(raw.reduce_op);
  if (raw.name == nullptr) return {Code::kInvalidArgument, "an operation needs a name"};
  op->name = raw.name;
  if (!kind || !dtype || !reduceOp)
    return {Code::kInvalidArgument, "'" + std::string(op->name) + "': unknown kind " +
                                        std::to_string(raw.kind) + ", dtype " +
                                        std::to_string(raw.dtype) + " or reduce op " +
                                        std::to_string(raw.reduce_op)};
  if (raw.ndim > rueda::shm::kMaxDims || (raw.ndim > 0 && raw.shape == nullptr))
    return {Code::kInvalidArgument, "'" + std::string(op->name) + "': " + std::to_string(raw.ndim) +
                                        " dimensions, or no shape"};
  op->kind = *kind;
  op->dtype = *dtype;
  op->reduceOp = *reduceOp;
  op->input = raw.input;
  op->output = raw.output;
  op->shape = raw.shape;
  op->ndim = raw.ndim;
  op->root = raw.root;
  op->splits = raw.splits;
  op->splitCount = raw.splits_count;
  op->processSet = raw.process_set;
  op->priority = raw.priority;
  op->outputRoom = raw.output_bytes;
  op->result = raw.result;
  op->received = raw.received;
  // Callers before version 3 know no output of a gather: what stands there means nothing.
  const bool knowsRoom = from->struct_size >= offsetof(rueda_op, output_bytes) + sizeof(uint64_t);
  if (rueda::shm::gathers(op->kind) && !knowsRoom) op->output = nullptr;
  op->prescale = raw.scale_set != 0 ? raw.prescale : 1.0;
  op->postscale = raw.scale_set != 0 ? raw.postscale : 1.0;
  return countElements(raw, op);
}

std::optional<rueda::shm::DType> knownDtype(uint32_t dtype) {
  return dtype < 256 ? rueda::shm::dtypeFromWire(static_cast<uint8_t>(dtype)) : std::nullopt;
}

Options toOptions(const rueda_options& raw) {
  Options options;
  options.rank = raw.rank;
  options.size = raw.size;
  options.localRank = raw.local_rank;
  options.localSize = raw.local_size;
  options.crossRank = raw.cross_rank;
  options.crossSize = raw.cross_size;
  const auto text = [](const auto& field) { return rueda::shm::fieldText(field, sizeof field); };
  if (raw.socket[0] != '\0') options.socket = text(raw.socket);
  if (raw.job[0] != '\0') options.job = text(raw.job);
  if (raw.hostname[0] != '\0') options.hostname = text(raw.hostname);
  if (raw.start_timeout_ms != 0) options.startTimeoutMs = raw.start_timeout_ms;
  options.isolated = raw.isolated != 0;
  options.timeline = text(raw.timeline);
  options.marksCycles = raw.timeline_mark_cycles != 0;
  options.knobs = {raw.fusion_bytes,      raw.cycle_us,     raw.stall_warn_ms,
                   raw.stall_shutdown_ms, raw.groups_apart, raw.fusion_look_back};
  if (raw.interrupted != nullptr)
    options.interrupted = [call = raw.interrupted, context = raw.interrupted_context] {
      return call(context) != 0;
    };
  return options;
}

}  // namespace

extern "C" {

uint32_t rueda_abi_version(void) { return RUEDA_ABI_VERSION; }

const char* rueda_version(void) { return rueda::shm::kVersion; }

const char* rueda_last_error(void) { return lastError.c_str(); }

const char* rueda_code_name(int32_t code) { return rueda::shm::codeName(static_cast<Code>(code)); }

uint32_t rueda_dtype_size(uint32_t dtype) {
  const auto known = knownDtype(dtype);
  return known ? static_cast<uint32_t>(rueda::shm::dtypeSize(*known)) : 0;
}

int32_t rueda_describe_dtype(uint32_t dtype, rueda_dtype_info* info) {
  if (info == nullptr || info->struct_size < sizeof *info) return invalid("struct_size is not set");
  return guarded([&]() -> Status {
    const auto known = knownDtype(dtype);
    if (!known) return {Code::kInvalidArgument, "no data type " + std::to_string(dtype)};
    info->bytes = static_cast<uint32_t>(rueda::shm::dtypeSize(*known));
    info->name = rueda::shm::dtypeName(*known);
    info->reduce_ops = 0;
    for (uint8_t op = 0; op < 32; ++op) {
      const auto reduceOp = rueda::shm::reduceOpFromWire(op);
      if (reduceOp && rueda::shm::canReduce(OpKind::kAllreduce, *known, *reduceOp))
        info->reduce_ops |= 1u << op;
    }
    return Status::ok();
  });
}

int32_t rueda_options_init(rueda_options* caller) {
  if (caller == nullptr || caller->struct_size < offsetof(rueda_options, fusion_bytes))
    return invalid("struct_size is not set");
  return guarded([&]() -> Status {
    RUEDA_ASSIGN_OR_RETURN(const Options found, rueda::client::optionsFromEnvironment());
    rueda_options known{};
    rueda_options* const options = &known;
    if (found.socket.size() >= sizeof options->socket || found.job.size() >= sizeof options->job ||
        found.hostname.size() >= sizeof options->hostname ||
        found.timeline.size() >= sizeof options->timeline)
      return {Code::kInvalidArgument,
              "RUEDA_SOCKET, RUEDA_JOB, RUEDA_HOSTNAME or RUEDA_TIMELINE is too long"};
    // An older caller has fewer fields.
    options->struct_size = std::min<uint32_t>(caller->struct_size, sizeof known);
    options->rank = found.rank;
    options->size = found.size;
    options->local_rank = found.localRank;
    options->local_size = found.localSize;
    options->cross_rank = found.crossRank;
    options->cross_size = found.crossSize;
    options->start_timeout_ms = found.startTimeoutMs;
    options->isolated = found.isolated ? 1 : 0;
    options->fusion_bytes = found.knobs.fusionBytes;
    options->cycle_us = found.knobs.cycleMicros;
    options->stall_warn_ms = found.knobs.stallWarnMs;
    options->stall_shutdown_ms = found.knobs.stallShutdownMs;
    options->groups_apart = found.knobs.groupsApart;
    options->fusion_look_back = found.knobs.fusionLookBack;
    rueda::shm::copyText(options->socket, sizeof options->socket, found.socket);
    rueda::shm::copyText(options->job, sizeof options->job, found.job);
    options->timeline_mark_cycles = found.marksCycles ? 1 : 0;
    rueda::shm::copyText(options->timeline, sizeof options->timeline, found.timeline);
    rueda::shm::copyText(options->hostname, sizeof options->hostname, found.hostname);
    std::memcpy(caller, &known, known.struct_size);
    return Status::ok();
  });
}

int32_t rueda_open(const rueda_options* options, rueda_session** session) {
  if (session == nullptr) return invalid("session is NULL");
  *session = nullptr;
  return guarded([&]() -> Status {
    rueda_options copy;
    const rueda_options* const known = ofThisVersion(options, &copy);
    if (known == nullptr) return sizeNotSet();
    const rueda_options& raw = *known;
    if (raw.size < 1 || raw.rank < 0 || raw.rank >= raw.size)
      return {Code::kInvalidArgument,
              "rank " + std::to_string(raw.rank) + " of " + std::to_string(raw.size)};
    RUEDA_ASSIGN_OR_RETURN(auto client, Client::open(toOptions(raw)));
    *session = new rueda_session{std::move(client)};
    return Status::ok();
  });
}

void rueda_close(rueda_session* session) { delete session; }

int32_t rueda_rank(const rueda_session* session) {
  return session == nullptr ? -1 : session->client->rank();
}

int32_t rueda_size(const rueda_session* session) {
  return session == nullptr ? -1 : session->client->size();
}

int32_t rueda_health(rueda_session* session) {
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    return session->client->health();
  });
}

int32_t rueda_add_process_set(rueda_session* session, const int32_t* ranks, uint32_t count,
                              uint32_t* set) {
  if (ranks == nullptr || set == nullptr) return invalid("ranks or set is NULL");
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    if (count > rueda::shm::kMaxRanks)
      return {Code::kInvalidArgument, "a process set of " + std::to_string(count) + " ranks"};
    RUEDA_ASSIGN_OR_RETURN(*set, session->client->addProcessSet({ranks, ranks + count}));
    return Status::ok();
  });
}

int32_t rueda_remove_process_set(rueda_session* session, uint32_t set) {
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    return session->client->removeProcessSet(set);
  });
}

int32_t rueda_join(rueda_session* session, uint32_t set, int32_t leftOut, int32_t* lastRank) {
  if (lastRank == nullptr) return invalid("last_rank is NULL");
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    RUEDA_ASSIGN_OR_RETURN(*lastRank, session->client->join(set, leftOut != 0));
    return Status::ok();
  });
}

int32_t rueda_start_timeline(rueda_session* session, const char* path, int32_t markCycles) {
  if (path == nullptr) return invalid("path is NULL");
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    return session->client->startTimeline(path, markCycles != 0);
  });
}

int32_t rueda_stop_timeline(rueda_session* session) {
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    return session->client->stopTimeline();
  });
}

int32_t rueda_alloc(rueda_session* session, uint64_t bytes, void** pointer) {
  if (pointer == nullptr) return invalid("pointer is NULL");
  *pointer = nullptr;
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    RUEDA_ASSIGN_OR_RETURN(*pointer, session->client->memory().allocate(bytes));
    return Status::ok();
  });
}

int32_t rueda_free(rueda_session* session, void* pointer) {
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    return session->client->memory().free(pointer);
  });
}

int32_t rueda_owns(rueda_session* session, const void* pointer, uint64_t bytes) {
  return checkSession(session).isOk() && session->client->memory().owns(pointer, bytes) ? 1 : 0;
}

int32_t rueda_run(rueda_session* session, const rueda_op* op) {
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    Operation operation;
    RUEDA_RETURN_IF_ERROR(toOperation(op, &operation));
    return session->client->run(operation);
  });
}

int32_t rueda_submit(rueda_session* session, const rueda_op* ops, uint32_t count,
                     rueda_handle* handles) {
  if (count > 0 && (ops == nullptr || handles == nullptr)) return invalid("ops or handles is NULL");
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    std::vector<Operation> operations(count);
    const auto* bytes = reinterpret_cast<const char*>(ops);
    for (uint32_t i = 0; i < count; ++i)  // The caller's struct may have another size than ours.
      RUEDA_RETURN_IF_ERROR(toOperation(
          reinterpret_cast<const rueda_op*>(bytes + size_t{i} * ops->struct_size), &operations[i]));
    std::vector<uint64_t> ids;
    RUEDA_RETURN_IF_ERROR(session->client->submit(operations, &ids));
    std::copy(ids.begin(), ids.end(), handles);
    return Status::ok();
  });
}

int32_t rueda_poll(rueda_session* session, rueda_handle handle, int32_t* done) {
  if (done == nullptr) return invalid("done is NULL");
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    RUEDA_ASSIGN_OR_RETURN(const bool isDone, session->client->poll(handle));
    *done = isDone ? 1 : 0;
    return Status::ok();
  });
}

int32_t rueda_wait(rueda_session* session, rueda_handle handle, uint32_t timeoutMs) {
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    return session->client->wait(handle, std::chrono::milliseconds(timeoutMs));
  });
}

int32_t rueda_gather_result(rueda_session* session, rueda_handle handle, rueda_gathered* result) {
  if (result == nullptr || result->struct_size < sizeof *result)
    return invalid("struct_size is not set");
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    const auto* gathered = session->client->gathered(handle);
    if (gathered == nullptr)
      return {Code::kInvalidArgument,
              "handle " + std::to_string(handle) + " is no finished allgather"};
    result->ranks = static_cast<uint32_t>(gathered->firstDims.size());
    result->data = gathered->data;
    result->bytes = gathered->bytes;
    result->first_dims = gathered->firstDims.data();
    return Status::ok();
  });
}

int32_t rueda_release(rueda_session* session, rueda_handle handle) {
  return guarded([&]() -> Status {
    RUEDA_RETURN_IF_ERROR(checkSession(session));
    return session->client->release(handle);
  });
}

}  // extern "C"
