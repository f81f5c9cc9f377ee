// SPDX-License-Identifier: Apache-2.0
#include "daemon/submit/greeting.h"

#include <algorithm>

namespace rueda::submit {

using shm::Code;
using shm::Status;

namespace {

Status checkRanges(const shm::Hello& hello) {
  const shm::Knobs& knobs = hello.knobs;
  const struct {
    const char* name;
    int64_t value, least, most;
  } ranges[] = {
      {"start timeout in ms", hello.startTimeoutMs, 1, shm::kMaxStartTimeoutMs},
      {"fusion threshold in bytes", knobs.fusionBytes, -1, shm::kMaxFusionBytes},
      {"cycle time in us", knobs.cycleMicros, -1, shm::kMaxCycleMicros},
      {"stall check time in ms", knobs.stallWarnMs, -1, shm::kMaxStallMs},
      {"stall shutdown time in ms", knobs.stallShutdownMs, -1, shm::kMaxStallMs},
      {"choice of groups apart", knobs.groupsApart, -1, 1},
      {"fusion look-back", knobs.fusionLookBack, -1, shm::kMaxLookBack},
  };
  for (const auto& range : ranges)
    if (range.value < range.least || range.value > range.most)
      return {Code::kInvalidArgument, "a " + std::string(range.name) + " of " +
                                          std::to_string(range.value) + ": it may be from " +
                                          std::to_string(range.least) + " to " +
                                          std::to_string(range.most)};
  return Status::ok();
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
  g.startTimeoutMs = hello->startTimeoutMs;
  g.isolated = hello->isolated != 0;
  g.knobs = hello->knobs;
  if (g.job.empty() || g.job.size() == sizeof hello->job)
    return Status(Code::kInvalidArgument, "a job id has 1 to 127 bytes");
  if (g.hostname.size() == sizeof hello->hostname)
    return Status(Code::kInvalidArgument, "a host name has at most 255 bytes");
  RUEDA_RETURN_IF_ERROR(checkRanges(*hello));
  RUEDA_RETURN_IF_ERROR(checkTopology(g));
  return g;
}

}  // namespace rueda::submit
