// SPDX-License-Identifier: Apache-2.0
#pragma once

// Child processes of tests. Forked before the test starts threads; a child runs `body` and ends
// with the code that it returns, without the parent's destructors.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace rueda::kit {

class Child {
 public:
  explicit Child(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body());
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void kill(int signal) { ::kill(pid_, signal); }
  // Waits until the child has ended, but leaves it a zombie.
  void awaitEnd() {
    siginfo_t info;
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  // Waits until the child is stopped by a signal.
  void awaitStop() {
    int status = 0;
    ::waitpid(pid_, &status, WUNTRACED);
  }
  // Reaps the child; its wait status.
  int wait() {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

}  // namespace rueda::kit
