# SPDX-License-Identifier: Apache-2.0
"""Starting and ending the processes of a job, so that none outlives the launcher.

Each rank leads a session and process group of its own: its children are reached too. The kernel
kills a rank when the launcher dies, and a guard process kills what is left of the groups then.
Main thread of the launcher only.
"""

import ctypes
import os
import signal
import subprocess

_PR_SET_PDEATHSIG = 1
# What a launcher has handlers for.
_OWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# Loaded before any fork: the child may not load libraries.
_libc = ctypes.CDLL(None)


def end_with_parent(parent, number):
    """In a forked child: the kernel sends it signal `number` when the process `parent` dies.

    More precisely, when the thread that forked ends. Exits at once where it is dead already.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


class Rank:
    """A started rank. `status` is None while it runs, else as Popen.returncode."""

    def __init__(self, number, command, environment, stdin, stdout, stderr):
        self.number = number
        self.status = None
        launcher = os.getpid()
        # Until the child is a program of its own, our handlers in it would take its signals, and
        # tell this process of them as if they were new ones.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())

        def become_rank():
            end_with_parent(launcher, signal.SIGKILL)
            for signal_number in _OWN_SIGNALS:
                if callable(signal.getsignal(signal_number)):
                    signal.signal(signal_number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        try:
            self._process = subprocess.Popen(
                command, env=environment, stdin=stdin, stdout=stdout, stderr=stderr,
                start_new_session=True, preexec_fn=become_rank)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self.pid = self._process.pid

    def poll(self):
        """Reaps the rank if it has ended; True exactly once, when that is noticed."""
        if self.status is not None:
            return False
        self.status = self._process.poll()
        return self.status is not None

    def signal(self, number):
        """Sends a signal to the rank alone."""
        if self.status is None:
            self._process.send_signal(number)

    def signal_group(self, number):
        """Sends a signal to the rank and its children; False when none is left."""
        try:
            os.killpg(self.pid, number)
            return True
        except ProcessLookupError:
            return False
        except PermissionError:  # Only processes of another user are left.
            return False


class Guard:
    """A small process that kills the groups it was told of when the launcher dies.

    Start it before anything else, so that it holds no descriptor of the job.
    """

    def __init__(self):
        read_end, self._write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                os.close(self._write_end)
                _guard(read_end)
            finally:
                os._exit(0)
        os.close(read_end)

    def watch(self, group):
        """From now on this process group ends with the launcher."""
        os.write(self._write_end, b'+%d\n' % group)

    def forget(self, group):
        """The group is empty; its number may be given to others."""
        os.write(self._write_end, b'-%d\n' % group)

    def close(self):
        """Ends the guard; kills the groups that were not forgotten."""
        os.close(self._write_end)
        os.waitpid(self._pid, 0)


def _guard(read_end):
    os.setsid()
    for number in _OWN_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    empty = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(empty, descriptor)
    groups = set()
    with os.fdopen(read_end, 'rb') as commands:
        for line in commands:
            group = int(line[1:])
            if line.startswith(b'+'):
                groups.add(group)
            else:
                groups.discard(group)
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:
            pass
