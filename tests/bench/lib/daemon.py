# SPDX-License-Identifier: Apache-2.0
"""A ruedad of the benchmark's own, and what the kernel says about processes."""
import os
import shutil
import socket
import subprocess
import tempfile
import time

from lib.peers import REPOSITORY

PROGRAM = os.path.join(REPOSITORY, "bazel-bin", "daemon", "ruedad")
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


class Daemon:
    """Runs ruedad with its defaults on a private socket until stop()."""

    def __init__(self, log_folder):
        """Ready for clients when this returns. Raises OSError with the log's last lines."""
        self._folder = tempfile.mkdtemp(prefix="rueda-bench-daemon-")
        self.socket = os.path.join(self._folder, "rueda.sock")
        self._log_path = os.path.join(log_folder, "ruedad.log")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("RUEDA_", "HOROVOD_"))}
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen([PROGRAM, "--socket", self.socket], env=kept,
                                             stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                             start_new_session=True)
        try:
            self._await_socket(time.monotonic() + 20)
        except OSError:
            self.stop()
            raise

    @property
    def pid(self):
        """Process id of ruedad."""
        return self._process.pid

    def stop(self):
        """Ends the daemon as an operator does; SIGKILL when it does not go in 10 s."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _await_socket(self, deadline):
        """Returns when a connection is accepted."""
        while True:
            probe = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                probe.connect(self.socket)
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    with open(self._log_path, encoding="utf-8", errors="replace") as file:
                        tail = " | ".join(file.read().strip().splitlines()[-4:])
                    raise OSError(f"ruedad does not serve: {tail}") from error
                time.sleep(0.01)  # The socket is not there yet; nothing to wait on.
            finally:
                probe.close()


def cpu_seconds(pid):
    """Processor time of all threads so far, from the scheduler's nanosecond clock."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
        except FileNotFoundError:
            continue  # The thread has just ended.
    return total / 1e9


def memory_mib(pid):
    """(resident, proportional) set size in MiB; shared pages count by their share in the second."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * PAGE_KIB / 1024
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pss:"):
                return resident, int(line.split()[1]) / 1024
    return resident, float("nan")


def thread_count(pid):
    """Threads of a process."""
    return len(os.listdir(f"/proc/{pid}/task"))
