// SPDX-License-Identifier: Apache-2.0
#include "tests/kit/hostile_client.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

namespace rueda::kit {
namespace {

using shm::MessageType;
using std::chrono::steady_clock;

constexpr int kPatienceMs = 30000;

}  // namespace

HostileClient::HostileClient(const std::string& socket) {
  auto connected = shm::connectUnix(socket);
  if (connected.isOk()) socket_ = std::move(connected).value();
}

shm::Hello HostileClient::hello(int rank, int size, const std::string& job) {
  auto hello = shm::makeMessage<shm::Hello>(MessageType::kHello);
  hello.protocolMin = shm::kProtocolMin;
  hello.protocolMax = shm::kProtocolMax;
  hello.rank = hello.localRank = rank;
  hello.size = hello.localSize = size;
  hello.startTimeoutMs = kPatienceMs;
  shm::copyText(hello.job, sizeof hello.job, job);
  shm::copyText(hello.hostname, sizeof hello.hostname, "hostile");
  return hello;
}

bool HostileClient::waitReadable(int timeoutMs) {
  pollfd waiting{socket_.get(), POLLIN, 0};
  return socket_.valid() && ::poll(&waiting, 1, timeoutMs) == 1;
}

std::optional<shm::Packet> HostileClient::receive() {
  shm::Packet packet;
  if (!waitReadable(kPatienceMs)) return std::nullopt;
  const auto got = shm::receivePacket(socket_.get(), true, &packet);
  if (!got.isOk() || got.value() != shm::ReceiveState::kPacket) return std::nullopt;
  return packet;
}

std::string HostileClient::noticeText(MessageType type) {
  while (const auto packet = receive())
    if (const auto* notice = packet->as<shm::Notice>(type))
      return shm::fieldText(notice->text, sizeof notice->text);
  return "";
}

bool HostileClient::isClosed() {
  while (waitReadable(kPatienceMs)) {
    shm::Packet packet;
    const auto got = shm::receivePacket(socket_.get(), true, &packet);
    if (got.isOk() && got.value() == shm::ReceiveState::kClosed) return true;
  }
  return false;
}

bool HostileClient::join(int rank, int size, const std::string& job) {
  if (!send(hello(rank, size, job)).isOk()) return false;
  const auto packet = receive();
  if (!packet || packet->as<shm::Welcome>(MessageType::kWelcome) == nullptr) return false;
  auto control = shm::Mapping::map(packet->fds[0].get(), shm::kControlBytes);
  auto board = shm::Mapping::map(packet->fds[2].get(), shm::kBoardsBytes);
  if (!control.isOk() || !board.isOk()) return false;
  control_ = std::move(control).value();
  board_ = std::move(board).value();
  doorbell_ = shm::Fd(::dup(packet->fds[1].get()));
  submissions_ = shm::RingProducer(control_.data() + shm::kSubmissionOffset,
                                   &this->control()->submitTail, &this->control()->submitHead);
  completions_ = shm::RingConsumer(control_.data() + shm::kCompletionOffset,
                                   &this->control()->completeTail, &this->control()->completeHead);
  return true;
}

bool HostileClient::awaitJob() {
  while (const auto packet = receive())
    if (packet->as<shm::PlainMessage>(MessageType::kJobReady) != nullptr) return true;
  return false;
}

uint32_t HostileClient::allocate(uint64_t bytes) {
  auto request = shm::makeMessage<shm::SegmentMessage>(MessageType::kAllocSegment);
  request.bytes = bytes;
  if (!send(request).isOk()) return 0;
  while (const auto packet = receive())
    if (const auto* grant = packet->as<shm::SegmentMessage>(MessageType::kSegmentGranted))
      return grant->segment;
  return 0;
}

void HostileClient::submit(const shm::SubmissionEntry& entry, const std::vector<int64_t>& shape,
                           const std::string& name) {
  publish(&submissions_, submissionSlots(entry, shape, name));
  ringDoorbell();
}

void HostileClient::ringDoorbell() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(doorbell_.get(), &one, sizeof one);
}

std::optional<shm::CompletionEntry> HostileClient::completion() {
  const auto deadline = steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  while (steady_clock::now() < deadline) {
    while (completions_.available() > 0) {
      shm::CompletionEntry entry;
      completions_.peek(0, &entry);
      completions_.consume(1);
      if (entry.type != static_cast<uint8_t>(shm::CompletionType::kTail)) return entry;
    }
    std::this_thread::yield();
  }
  return std::nullopt;
}

shm::SubmissionEntry allreduceEntry(uint64_t requestId, uint32_t segment) {
  shm::SubmissionEntry entry{};
  entry.type = static_cast<uint8_t>(shm::EntryType::kSubmit);
  entry.kind = static_cast<uint8_t>(shm::OpKind::kAllreduce);
  entry.dtype = static_cast<uint8_t>(shm::DType::kFloat32);
  entry.reduceOp = static_cast<uint8_t>(shm::ReduceOp::kSum);
  entry.requestId = requestId;
  entry.inSegment = entry.outSegment = segment;
  entry.prescale = entry.postscale = 1;
  return entry;
}

}  // namespace rueda::kit
