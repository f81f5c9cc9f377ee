# SPDX-License-Identifier: Apache-2.0
"""The driver's end of a gang: N rank processes of one contender that live through the run.

The ranks block in a read of their own named pipe between commands, so an idle gang takes no CPU,
whatever its library does while it waits. bench_gang.h describes the folder. One thread only.
"""
import os
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections import namedtuple

# Microseconds of one command as rank 0 saw it; for a few kinds three other numbers.
Sample = namedtuple("Sample", "p50 p99 mean count")


# A memory file system: mapped files must not be written to a disk.
PLACE = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
PREFIX = "rueda-bench-"


class GangError(Exception):
    """A gang did not start, answered with an error, died or took too long. The text says why."""


class Gang:
    """Starts the programs that `launch(folder)` names and talks to them."""

    def __init__(self, name, ranks, launch, log_folder):
        """`launch(folder)` returns ([argv, ...], environment); ready when this returns.

        Raises GangError.
        """
        self.name = name
        self.ranks = ranks
        self._log_path = os.path.join(log_folder, f"{name}-{ranks}.log")
        self._folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=PLACE)
        self._process = None
        self._unread = b""
        self._make_channels()
        try:
            argvs, environment = launch(self._folder)
            self._spawn(argvs, environment)
            if self._line(time.monotonic() + 90) != "ready":
                raise GangError(f"{name}: no 'ready' line")
        except (GangError, OSError) as error:
            self.kill()
            raise GangError(str(error)) from error

    def run(self, kind, nbytes, iterations, timeout=180):
        """Measures one kind on all ranks. Returns a Sample; raises GangError and is dead then."""
        try:
            for pipe in self._commands:
                os.write(pipe, f"{kind} {nbytes} {iterations}\n".encode())
            words = self._line(time.monotonic() + timeout).split()
            if words[0] != "ok":
                raise GangError(f"{self.name}: {' '.join(words)}")
            return Sample(float(words[1]), float(words[2]), float(words[3]), int(words[4]))
        except (GangError, OSError, IndexError, ValueError) as error:
            self.kill()
            raise GangError(str(error)) from error

    def pids(self):
        """Process ids of the ranks, in rank order."""
        found = []
        for rank in range(self.ranks):
            with open(os.path.join(self._folder, f"pid.{rank}"), encoding="ascii") as file:
                found.append(int(file.read()))
        return found

    def leave(self):
        """Asks the ranks to end; returns at once."""
        for pipe in self._commands:
            os.close(pipe)
        self._commands = []

    def stop(self):
        """Ends the ranks and removes the folder."""
        self.leave()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            pass  # kill() ends what is left.
        self.kill()

    def kill(self):
        """Ends at once what still runs, and removes the folder."""
        self.leave()
        for rank_pid in self._left_over_pids():
            _signal(os.kill, rank_pid)
        if self._process is not None and self._process.returncode is None:
            _signal(os.killpg, self._process.pid)  # The shell leads the group of its ranks.
            self._process.wait()
        if self._reply >= 0:
            os.close(self._reply)
            self._reply = -1
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make_channels(self):
        with open(os.path.join(self._folder, "lines"), "wb") as file:
            file.write(bytes(4096))
        self._commands = []
        for rank in range(self.ranks):
            path = os.path.join(self._folder, f"command.{rank}")
            os.mkfifo(path, 0o600)
            self._commands.append(os.open(path, os.O_RDWR))
        path = os.path.join(self._folder, "reply")
        os.mkfifo(path, 0o600)
        self._reply = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def _spawn(self, argvs, environment):
        """Starts the ranks from one shell, so that they share a session as a launcher's do.

        The scheduler groups processes by session, and a rank that yields gives way only within its
        group: ranks in sessions of their own would wait a time slice for each other.
        """
        script = "\n".join(" ".join(map(shlex.quote, argv)) + " &" for argv in argvs)
        script += "\n" + "wait -n || exit $?\n" * len(argvs)
        with open(self._log_path, "wb") as log:
            self._process = subprocess.Popen(
                ["bash", "-c", script], env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, start_new_session=True)

    def _line(self, deadline):
        """The next line of the reply pipe. Raises GangError."""
        while b"\n" not in self._unread:
            if time.monotonic() > deadline:
                raise GangError(f"{self.name}: no answer in time{self._log_tail()}")
            if select.select([self._reply], [], [], 0.2)[0]:
                self._unread += os.read(self._reply, 65536)
            elif self._process.poll() is not None:
                raise GangError(f"{self.name}: a process ended{self._log_tail()}")
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode(errors="replace")

    def _log_tail(self):
        try:
            with open(self._log_path, encoding="utf-8", errors="replace") as file:
                lines = file.read().strip().splitlines()[-6:]
        except OSError:
            lines = []
        return "".join("\n    " + line for line in lines)

    def _left_over_pids(self):
        """Ranks that still run: a launcher that is killed may leave them behind."""
        if self._process is None or self._process.poll() == 0:
            return []
        left = []
        for rank in range(self.ranks):
            try:
                with open(os.path.join(self._folder, f"pid.{rank}"), encoding="ascii") as file:
                    pid = int(file.read())
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if self._folder.encode() in file.read():
                        left.append(pid)
            except (OSError, ValueError):
                continue
        return left


def _signal(send, pid):
    try:
        send(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def remove_stale_folders():
    """Removes what a driver that was killed has left in memory."""
    for name in os.listdir(PLACE):
        owner = name[len(PREFIX):].split("-")[0] if name.startswith(PREFIX) else ""
        if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            shutil.rmtree(os.path.join(PLACE, name), ignore_errors=True)
