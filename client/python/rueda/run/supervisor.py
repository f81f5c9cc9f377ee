# SPDX-License-Identifier: Apache-2.0
"""Looks after the running ranks of a job: output, signals, the first failure, the end.

One thread, one event loop; nothing here waits longer than the next deadline.
"""

import os
import selectors
import signal
import time

from rueda.run import failure

# Passed on to the whole group of each rank. The first two also end the job.
_ENDING = (signal.SIGINT, signal.SIGTERM)
_FOR_GROUPS = _ENDING + (signal.SIGHUP,)
# Passed on to the ranks alone: their children, e.g. data loaders, would die of these.
_FOR_RANKS = (signal.SIGUSR1, signal.SIGUSR2)
# How long output is still read after the last rank has ended, from children that left its group.
_DRAIN_SECONDS = 1.0


class Signals:
    """Turns signals of this process into readable bytes of a pipe. Restores all at close()."""

    def __init__(self):
        self.read_end, self._write_end = os.pipe()
        os.set_blocking(self.read_end, False)
        os.set_blocking(self._write_end, False)
        self._before = {}
        for number in _FOR_GROUPS + _FOR_RANKS + (signal.SIGCHLD,):
            # A launcher under nohup goes on ignoring SIGHUP, and so do its ranks.
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGCHLD:
                self._before[number] = signal.signal(number, lambda *ignored: None)
        self._wakeup = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)

    def take(self):
        """Numbers of the signals that came since the last call."""
        try:
            return list(os.read(self.read_end, 4096))
        except BlockingIOError:
            return []

    def close(self):
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self.read_end)
        os.close(self._write_end)


class Supervisor:
    """Runs until every rank has ended and its output is through. `say(text)` tells the user."""

    def __init__(self, signals, guard, daemon, grace_seconds, say):
        self._signals = signals
        self._guard = guard
        self._daemon = daemon  # A Popen object, or None.
        self._grace_seconds = grace_seconds
        self._say = say
        self._oom = failure.OomCounter()
        self._ranks = []
        self._streams = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.read_end, selectors.EVENT_READ)
        self._first_failure = None
        self._ending_signal = None
        self._kill_at = None

    def add(self, rank, streams):
        """Takes a started rank and its output streams in."""
        self._guard.watch(rank.pid)
        self._ranks.append(rank)
        for stream in streams:
            self._streams.append(stream)
            self._selector.register(stream.read_end, selectors.EVENT_READ, stream)

    def run(self):
        """Returns the exit status for the launcher: 0, that of the rank that failed first
        (128 + signal), or 128 + the signal that ended the launcher."""
        while any(rank.status is None for rank in self._ranks):
            self._turn(self._seconds_left(self._kill_at))
        self._sweep_groups()
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._streams and time.monotonic() < deadline:
            self._turn(self._seconds_left(deadline))
        for stream in list(self._streams):
            self._drop(stream)
        self._selector.close()
        if self._ending_signal is not None:
            return 128 + self._ending_signal
        return failure.exit_code(self._first_failure.status) if self._first_failure else 0

    @staticmethod
    def _seconds_left(deadline):
        return None if deadline is None else max(0.0, deadline - time.monotonic())

    def _turn(self, timeout):
        for key, _ in self._selector.select(timeout):
            if key.data is None:
                self._on_signals()
            else:
                self._pump(key.data)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._signal_groups(signal.SIGKILL)
            self._kill_at = None

    def _pump(self, stream):
        try:
            if not stream.pump():
                self._drop(stream)
        except BrokenPipeError:
            # Whoever read our output has gone; end as any program of a pipeline does.
            self._drop(stream)
            self._end(signal.SIGPIPE)

    def _drop(self, stream):
        self._selector.unregister(stream.read_end)
        self._streams.remove(stream)
        stream.close()

    def _on_signals(self):
        for number in self._signals.take():
            if number == signal.SIGCHLD:
                continue
            self._say(f'received {signal.Signals(number).name}, passing it on to the ranks', True)
            if number in _FOR_RANKS:
                for rank in self._ranks:
                    rank.signal(number)
            elif number in _ENDING:
                self._end(number)
            else:
                self._signal_groups(number)
        self._reap()

    def _end(self, number):
        # A second request does not wait for the grace period.
        if self._ending_signal is not None:
            number = signal.SIGKILL
        else:
            self._ending_signal = number
            self._kill_at = time.monotonic() + self._grace_seconds
        self._signal_groups(signal.SIGTERM if number == signal.SIGPIPE else number)

    def _reap(self):
        ended = [rank for rank in self._ranks if rank.poll()]
        for rank in ended:
            if not rank.signal_group(0):
                self._guard.forget(rank.pid)
        failed = [rank for rank in ended if rank.status != 0]
        if failed and self._first_failure is None and self._ending_signal is None:
            # Of several that ended in one moment, the killed one is the cause: the others were
            # told of its death and gave up.
            self._on_first_failure(min(failed, key=lambda rank: (rank.status >= 0, rank.number)))
        if self._daemon is not None and self._daemon.poll() is not None:
            self._say('the daemon ended: '
                      + failure.describe(self._daemon.returncode, self._oom.kills()), False)
            self._daemon = None

    def _on_first_failure(self, rank):
        self._first_failure = rank
        others = sum(other.status is None for other in self._ranks)
        self._say(f'rank {rank.number} (pid {rank.pid}) failed first: '
                  + failure.describe(rank.status, self._oom.kills())
                  + (f'; ending the other {others} ranks' if others else ''), False)
        self._signal_groups(signal.SIGTERM)
        self._kill_at = time.monotonic() + self._grace_seconds

    def _signal_groups(self, number):
        for rank in self._ranks:
            rank.signal_group(number)

    def _sweep_groups(self):
        # Children that a rank left behind.
        for rank in self._ranks:
            rank.signal_group(signal.SIGKILL)
            self._guard.forget(rank.pid)
