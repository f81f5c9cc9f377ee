// SPDX-License-Identifier: Apache-2.0
#include "daemon/submit/greeting.h"

#include <algorithm>

namespace rueda::submit {

using shm::Code;
using shm::Status;

namespace {

constexpr uint32_t kMinStartTimeoutMs = 100;
constexpr uint32_t kMaxStartTimeoutMs = 24u * 3600 * 1000;
constexpr int64_t kMaxFusionBytes = int64_t{1} << 40;
constexpr int64_t kMaxCycleMicros = 1000 * 1000;
constexpr int64_t kMaxStallMs = int64_t{30} * 24 * 3600 * 1000;
constexpr int32_t kMaxLookBack = 256;

// Numbers out of range become the nearest that is allowed.
shm::Knobs clamped(shm::Knobs knobs) {
  knobs.fusionBytes = std::clamp<int64_t>(knobs.fusionBytes, -1, kMaxFusionBytes);
  knobs.cycleMicros = std::clamp<int64_t>(knobs.cycleMicros, -1, kMaxCycleMicros);
  knobs.stallWarnMs = std::clamp<int64_t>(knobs.stallWarnMs, -1, kMaxStallMs);
  knobs.stallShutdownMs = std::clamp<int64_t>(knobs.stallShutdownMs, -1, kMaxStallMs);
  knobs.fusionLookBack = std::clamp(knobs.fusionLookBack, -1, kMaxLookBack);
  return knobs;
}

// Hellos of other versions have other sizes, but say the same at their beginning.
Status checkVersions(const shm::Packet& packet) {
  if (packet.bytes < offsetof(shm::Hello, rank) || packet.type() != shm::MessageType::kHello)
    return {Code::kProtocolError, "the first message is no hello"};
  const auto* hello = reinterpret_cast<const shm::Hello*>(packet.data.data());
  if (hello->protocolMin <= shm::kProtocolMax && hello->protocolMax >= shm::kProtocolMin)
    return Status::ok();
  return {Code::kProtocolError, "client speaks protocol " + std::to_string(hello->protocolMin) +
                                    " to " + std::to_string(hello->protocolMax) + ", this daemon " +
                                    std::to_string(shm::kProtocolMin) + " to " +
                                    std::to_string(shm::kProtocolMax)};
}

Status checkTopology(const Greeting& g) {
  const std::string got = "rank " + std::to_string(g.rank) + " of " + std::to_string(g.size) +
                          ", local rank " + std::to_string(g.localRank) + " of " +
                          std::to_string(g.localSize);
  if (g.size < 1 || g.rank < 0 || g.rank >= g.size || g.localSize < 1 || g.localRank < 0 ||
      g.localRank >= g.localSize)
    return {Code::kInvalidArgument, "impossible place in the job: " + got};
  if (g.size > static_cast<int>(shm::kMaxRanks))
    return {Code::kInvalidArgument,
            got + ": at most " + std::to_string(shm::kMaxRanks) + " ranks on a host"};
  if (g.localSize != g.size)
    return {Code::kUnimplemented, got + ": all ranks of a job must be on this host"};
  return Status::ok();
}

}  // namespace

shm::Result<Greeting> parseGreeting(const shm::Packet& packet) {
  RUEDA_RETURN_IF_ERROR(checkVersions(packet));
  const auto* hello = packet.as<shm::Hello>(shm::MessageType::kHello);
  if (hello == nullptr)
    return Status(Code::kProtocolError, "a hello of " + std::to_string(packet.bytes) +
                                            " bytes; this daemon expects " +
                                            std::to_string(sizeof *hello));
  if (!packet.fds.empty()) return Status(Code::kProtocolError, "a hello carries no descriptors");
  Greeting g;
  g.protocol = std::min(hello->protocolMax, shm::kProtocolMax);
  g.job = shm::fieldText(hello->job, sizeof hello->job);
  g.hostname = shm::fieldText(hello->hostname, sizeof hello->hostname);
  g.rank = hello->rank;
  g.size = hello->size;
  g.localRank = hello->localRank;
  g.localSize = hello->localSize;
  g.startTimeoutMs = std::clamp(hello->startTimeoutMs, kMinStartTimeoutMs, kMaxStartTimeoutMs);
  g.isolated = hello->isolated != 0;
  g.knobs = clamped(hello->knobs);
  if (g.job.empty() || g.job.size() == sizeof hello->job)
    return Status(Code::kInvalidArgument, "a job id has 1 to 127 bytes");
  if (g.hostname.size() == sizeof hello->hostname)
    return Status(Code::kInvalidArgument, "a host name has at most 255 bytes");
  RUEDA_RETURN_IF_ERROR(checkTopology(g));
  return g;
}

}  // namespace rueda::submit
