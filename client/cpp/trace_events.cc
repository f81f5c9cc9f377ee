// SPDX-License-Identifier: Apache-2.0
#include "client/cpp/trace_events.h"

#include <algorithm>
#include <cctype>

namespace rueda::client {

using shm::OpKind;

namespace {

// Together with numbers, 64 dimensions and keys below TraceFile::kMaxElementBytes.
constexpr size_t kMaxNameBytes = 3000;
constexpr size_t kMaxErrorBytes = 1000;
constexpr size_t kMaxCycles = 256;  // Operations of so many may end in any order.

std::string kindName(const TimedOperation& op) {
  if (op.isAdasum) return "ADASUM";
  if (op.kind == OpKind::kAddSet) return "ADD_PROCESS_SET";
  if (op.kind == OpKind::kRemoveSet) return "REMOVE_PROCESS_SET";
  std::string name = shm::opKindName(op.kind);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// What carries it out: nullptr where nothing moves.
const char* activityOf(const TimedOperation& op) {
  if (op.isAdasum) return "SHM_ADASUM_ALLREDUCE";
  switch (op.kind) {
    case OpKind::kAllreduce:
      return "SHM_ALLREDUCE";
    case OpKind::kAllgather:
      return "COPY_ALLGATHER_OUTPUT";
    case OpKind::kBroadcast:
      return "SHM_BCAST";
    case OpKind::kAlltoall:
      return "SHM_ALLTOALL";
    case OpKind::kReducescatter:
      return "SHM_REDUCESCATTER";
    case OpKind::kBarrier:
    case OpKind::kJoin:
    case OpKind::kAddSet:
    case OpKind::kRemoveSet:
      break;
  }
  return nullptr;
}

std::string metadata(const char* name, int pid, const std::string& args) {
  return std::string("{\"name\":\"") + name + "\",\"ph\":\"M\",\"pid\":" + std::to_string(pid) +
         ",\"args\":{" + args + "}}";
}

std::string argsOf(const TimedOperation& op, bool withTensor) {
  std::string args;
  if (withTensor) {
    std::string shape;
    for (const int64_t dim : op.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(dim);
    args =
        std::string("\"dtype\":\"") + shm::dtypeName(op.dtype) + "\",\"shape\":\"[" + shape + "]\"";
  }
  if (!op.error.empty())
    args += (args.empty() ? "\"error\":" : ",\"error\":") +
            TraceEvents::quoted(op.error, kMaxErrorBytes);
  return args.empty() ? "" : ",\"args\":{" + args + "}";
}

// How many bytes of well-formed UTF-8 `text` has at `at` for one character; 0: none.
size_t characterBytes(const std::string& text, size_t at) {
  const auto byte = [&text](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if ((byte(at + i) & 0xC0u) != 0x80) return 0;
  const unsigned second = byte(at + 1);
  const bool isTooShort = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
  const bool isNoCharacter = (lead == 0xED && second > 0x9F) || (lead == 0xF4 && second > 0x8F);
  return isTooShort || isNoCharacter ? 0 : bytes;
}

}  // namespace

std::string TraceEvents::quoted(const std::string& text, size_t maxBytes) {
  static const char kHex[] = "0123456789abcdef";
  std::string json = "\"";
  for (size_t at = 0; at < text.size();) {
    if (json.size() >= maxBytes) {
      json += "...";
      break;
    }
    const size_t bytes = characterBytes(text, at);
    const auto c = static_cast<unsigned char>(text[at]);
    if (bytes == 0)
      json += "\xEF\xBF\xBD";
    else if (c < 0x20 || c == 0x7F)
      json += std::string("\\u00") + kHex[c >> 4] + kHex[c & 15];
    else
      json += (c == '"' || c == '\\' ? "\\" : "") + text.substr(at, bytes);
    at += std::max<size_t>(1, bytes);
  }
  return json + '"';
}

TraceEvents::TraceEvents(int64_t beganAt, int64_t epochMicros, bool marksCycles)
    : beganAt_(beganAt), epochMicros_(epochMicros), marksCycles_(marksCycles) {}

std::vector<std::string> TraceEvents::begin() const {
  return {metadata("process_name", 0,
                   "\"start_time_since_epoch_in_micros\":" + std::to_string(epochMicros_))};
}

// Names of different process sets are different tensors.
TraceEvents::Process& TraceEvents::processOf(const TimedOperation& op,
                                             std::vector<std::string>* events) {
  std::string name = op.name;
  if (op.processSet != 0) name += " of process set " + std::to_string(op.processSet);
  if (processes_.size() >= kMaxNames && processes_.count(name) == 0) name = "(more names)";
  Process& process = processes_[name];
  if (process.pid != 0) return process;
  process.pid = static_cast<int>(processes_.size());
  events->push_back(
      metadata("process_name", process.pid, "\"name\":" + quoted(name, kMaxNameBytes)));
  events->push_back(
      metadata("process_sort_index", process.pid, "\"sort_index\":" + std::to_string(process.pid)));
  return process;
}

void TraceEvents::markCycle(int64_t at, std::vector<std::string>* events) {
  if (!cycles_.insert(at).second) return;
  if (cycles_.size() > kMaxCycles) {
    const bool isForgotten = *cycles_.begin() == at;
    cycles_.erase(cycles_.begin());
    if (isForgotten) return;
  }
  const int64_t micros = std::max<int64_t>(0, at - beganAt_) / 1000;
  events->push_back("{\"ph\":\"i\",\"name\":\"CYCLE_START\",\"ts\":" + std::to_string(micros) +
                    ",\"s\":\"g\"}");
}

// Spans of one process nest only if time does not go back in it: a rank may come to the next
// operation of this name while this rank still copies the result of the last one.
void TraceEvents::Scribe::add(const char* phase, const std::string& name, int64_t at,
                              const std::string& more) {
  process.last = std::max(process.last, (at - beganAt) / 1000);
  events.push_back(std::string("{\"ph\":\"") + phase + '"' +
                   (name.empty() ? "" : ",\"name\":\"" + name + '"') +
                   ",\"ts\":" + std::to_string(process.last) +
                   ",\"pid\":" + std::to_string(process.pid) + more + '}');
}

void TraceEvents::Scribe::span(const char* name, int64_t from, int64_t to) {
  add("B", name, from);
  add("E", "", to);
}

std::vector<std::string> TraceEvents::of(const TimedOperation& op) {
  std::vector<std::string> events;
  Scribe scribe{beganAt_, processOf(op, &events), events};
  const bool isDecided = !op.arrivals.empty();
  if (marksCycles_ && isDecided) markCycle(op.times.cycle, &events);

  std::vector<shm::RankTime> arrivals = op.arrivals;
  if (!isDecided) arrivals.push_back({op.rank, 0, op.submitted});
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const auto& a, const auto& b) { return a.submitted < b.submitted; });
  scribe.add("B", "NEGOTIATE_" + kindName(op), arrivals.front().submitted);
  for (const shm::RankTime& arrival : arrivals)
    scribe.add("X", std::to_string(arrival.rank), arrival.submitted, ",\"dur\":0");
  const bool ran = isDecided && op.times.started != 0;
  scribe.add("E", "", isDecided ? op.times.complete : op.ended, ran ? "" : argsOf(op, false));
  if (!ran) return events;

  scribe.add("B", kindName(op), op.times.complete);
  if (op.times.decided > op.times.complete)
    scribe.span("WAIT_FOR_OTHER_TENSOR_DATA", op.times.complete, op.times.decided);
  const char* const activity = activityOf(op);
  const bool gathers = shm::gathers(op.kind);
  if (activity != nullptr && !gathers) {
    scribe.span("QUEUE", op.times.decided, op.times.started);
    scribe.span(activity, op.times.started, op.times.ended);
  }
  const bool copies = op.copyEnd != 0;
  // The copy of a result that is fetched some time later is no part of the operation.
  const bool isInside = gathers || op.isBlocking;
  const char* const copy = gathers ? activity : "MEMCPY_OUT_SHARED_BUFFER";
  if (copies && isInside) scribe.span(copy, op.copyBegin, op.copyEnd);
  scribe.add("E", "", op.times.ended, argsOf(op, !shm::isAgreement(op.kind)));
  if (copies && !isInside) scribe.span(copy, op.copyBegin, op.copyEnd);
  return events;
}

}  // namespace rueda::client
