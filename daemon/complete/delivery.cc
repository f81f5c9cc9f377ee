// SPDX-License-Identifier: Apache-2.0
#include "daemon/complete/delivery.h"

#include <utility>

#include "shm/entry_tail.h"

namespace rueda::complete {
namespace {

using flow::Outcome;
using shm::CompletionEntry;
using shm::CompletionType;

// The slots of one outcome.
std::vector<char> encode(const Outcome& outcome) {
  const std::string text = outcome.status.message().substr(0, shm::kMaxTextBytes);
  std::string tail;
  const auto append = [&tail](const void* from, size_t bytes) {
    tail.append(static_cast<const char*>(from), bytes);
  };
  append(outcome.rows.data(), outcome.rows.size() * sizeof(shm::RowBlock));
  tail += text;
  if (!outcome.rankTimes.empty()) {
    append(&outcome.times, sizeof outcome.times);
    append(outcome.rankTimes.data(), outcome.rankTimes.size() * sizeof(shm::RankTime));
  }

  CompletionEntry first{};
  first.type =
      static_cast<uint8_t>(outcome.released ? CompletionType::kReleased : CompletionType::kOutcome);
  first.timedRanks = static_cast<uint8_t>(outcome.rankTimes.size());
  first.code = static_cast<int32_t>(outcome.status.code());
  first.requestId = outcome.requestId;
  first.value = outcome.value;
  first.textBytes = static_cast<uint32_t>(text.size());
  first.gatherRanks = static_cast<uint32_t>(outcome.rows.size());
  first.hasDirectIndex = outcome.directIndex.has_value() ? 1 : 0;
  first.directIndex = outcome.directIndex.value_or(0);
  std::vector<char> entries;
  entries.reserve(size_t{shm::slotsFor<CompletionEntry>(tail.size())} * shm::kEntryBytes);
  shm::writeSlots(first, tail, [&entries](const void* slot) {
    const char* const from = static_cast<const char*>(slot);
    entries.insert(entries.end(), from, from + shm::kEntryBytes);
  });
  return entries;
}

}  // namespace

void Delivery::addSession(flow::SessionId session, char* slots, shm::ControlHeader* control) {
  Writer& writer = writers_[session];
  writer.ring = shm::RingProducer(slots, &control->completeTail, &control->completeHead);
  writer.control = control;
}

void Delivery::forget(flow::SessionId session) { writers_.erase(session); }

void Delivery::deliver(const Outcome& outcome) {
  const auto it = writers_.find(outcome.session);
  if (it == writers_.end()) return;
  Writer& writer = it->second;
  if (!writer.broken.isOk()) return;
  if (!writer.dirty) touched_.push_back(outcome.session);
  writer.dirty = true;
  if (writer.backlog.size() < kMaxBacklog)
    writer.backlog.push_back(encode(outcome));
  else
    writer.broken = {shm::Code::kResourceExhausted,
                     std::to_string(kMaxBacklog) + " outcomes wait to be read"};
}

void Delivery::writeBacklog(Writer* writer) {
  bool wrote = false;
  while (!writer->backlog.empty()) {
    const std::vector<char>& entries = writer->backlog.front();
    const auto slots = static_cast<int64_t>(entries.size() / shm::kEntryBytes);
    int64_t space = writer->ring.space();
    if (space < slots) {
      // Say so, then look again. seq_cst pairs with the client, which gives slots back and then
      // reads the flag: one of the two sees the other, so a backlog is never forgotten.
      writer->control->completionBlocked.store(1, std::memory_order_seq_cst);
      space = writer->ring.space();
    }
    if (space < 0)
      writer->broken = {shm::Code::kProtocolError, "impossible index in the completion ring"};
    if (space < slots) break;
    for (int64_t i = 0; i < slots; ++i) writer->ring.stage(entries.data() + i * shm::kEntryBytes);
    writer->ring.publish();
    writer->backlog.pop_front();
    wrote = true;
  }
  if (writer->backlog.empty())
    writer->control->completionBlocked.store(0, std::memory_order_relaxed);
  if (wrote) shm::ring(writer->control->completionBell);
}

std::vector<Delivery::Broken> Delivery::flush() {
  std::vector<Broken> broken;
  std::vector<flow::SessionId> again;
  for (const flow::SessionId session : std::exchange(touched_, {})) {
    const auto it = writers_.find(session);
    if (it == writers_.end()) continue;
    Writer& writer = it->second;
    if (writer.broken.isOk()) writeBacklog(&writer);
    writer.dirty = !writer.backlog.empty();
    if (!writer.broken.isOk())
      broken.push_back({session, writer.broken});
    else if (writer.dirty)
      again.push_back(session);
  }
  touched_ = std::move(again);
  return broken;
}

bool Delivery::hasBacklog() const { return !touched_.empty(); }

}  // namespace rueda::complete
