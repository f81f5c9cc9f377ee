// SPDX-License-Identifier: Apache-2.0
#include "daemon/membership/exit_cause.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

namespace rueda::membership {
namespace {

// struct pidfd_info and PIDFD_GET_INFO of Linux 6.13, with exit information since 6.15; absent in
// older headers.
struct PidfdInfo {
  uint64_t mask, cgroupId;
  uint32_t pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
  int32_t exitCode;
};
constexpr uint64_t kInfoExit = 1u << 3;
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

// Where the kernel does not let us look into a process it shows a wait status of 0 in
// /proc/PID/stat. The same permission is asked for this link.
bool isHidden(pid_t pid) {
  char target[1];
  return ::readlink(("/proc/" + std::to_string(pid) + "/exe").c_str(), target, sizeof target) < 0 &&
         errno == EACCES;
}

constexpr int kHiddenLooks = 10;  // One a millisecond; a launcher collects its ranks at once.

bool hasEnded(int pidfd) {
  pollfd waiting{pidfd, POLLIN, 0};
  return pidfd >= 0 && ::poll(&waiting, 1, 0) == 1;
}

// The wait status of a process that its parent has collected, on kernels that keep it.
std::optional<int> reapedStatus(int pidfd) {
  PidfdInfo info{};
  info.mask = kInfoExit;
  if (pidfd < 0 || ::ioctl(pidfd, kGetInfo, &info) != 0 || (info.mask & kInfoExit) == 0)
    return std::nullopt;
  return info.exitCode;
}

std::string readStat(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

ProcessStat parseProcessStat(const std::string& text) {
  // State is field 3, the number of threads field 20, the wait status field 52.
  constexpr int kFieldsBeforeThreads = 16;
  constexpr int kFieldsBeforeStatus = 31;
  ProcessStat stat;
  const size_t name = text.rfind(')');  // The command may hold anything, ')' included.
  if (name == std::string::npos) return stat;
  std::istringstream fields(text.substr(name + 1));
  fields >> stat.state;
  std::string skipped;
  for (int i = 0; i < kFieldsBeforeThreads; ++i) fields >> skipped;
  if (!(fields >> stat.threads)) stat.threads = 0;
  for (int i = 0; i < kFieldsBeforeStatus; ++i) fields >> skipped;
  if (!(fields >> stat.waitStatus)) stat.waitStatus = -1;
  return stat;
}

std::string describeWaitStatus(int status) {
  if (WIFSIGNALED(status))
    return "was killed by signal " + std::to_string(WTERMSIG(status)) + " (" +
           ::strsignal(WTERMSIG(status)) + ")";
  return "exited with code " + std::to_string(WEXITSTATUS(status));
}

std::string exitCause(pid_t pid, int pidfd) {
  if (const auto status = reapedStatus(pidfd)) return describeWaitStatus(*status);
  const ProcessStat stat = parseProcessStat(readStat(pid));
  // A dying process closes its sockets before it becomes a zombie; its status is set by then. Its
  // memory is gone too, which is how 'R' or 'D' here differs from a live one.
  const bool isDying =
      stat.state == 'Z' || stat.state == 'X' || hasEnded(pidfd) || stat.waitStatus > 0;
  if (isDying && (stat.waitStatus > 0 || (stat.waitStatus == 0 && !isHidden(pid))))
    return describeWaitStatus(stat.waitStatus);
  // Its parent may have collected it between the two looks. Where the kernel hides the status of a
  // zombie from this user, only that tells it: worth a short wait, since it happens once a death.
  const int looks = isHidden(pid) ? kHiddenLooks : 1;
  for (int look = 0; look < looks; ++look) {
    if (const auto status = reapedStatus(pidfd)) return describeWaitStatus(*status);
    if (looks > 1) ::poll(nullptr, 0, 1);
  }
  return hasEnded(pidfd) ? "ended" : "closed its connection";
}

uint64_t threadsOf(pid_t pid) { return parseProcessStat(readStat(pid)).threads; }

bool isStopped(pid_t pid) {
  const char state = parseProcessStat(readStat(pid)).state;
  return state == 'T' || state == 't';
}

}  // namespace rueda::membership
