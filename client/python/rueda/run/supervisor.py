# SPDX-License-Identifier: Apache-2.0
"""Looks after the running ranks of a job: output, signals, the first failure, the end.

One thread, one event loop; nothing here waits longer than the next deadline.
"""

import functools
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
# After the first failure, until the others get SIGTERM. They learn of it in 20 to 50 ms by
# themselves; the rest is for what they have to say about it, e.g. a traceback.
_OWN_END_SECONDS = 1.0


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
    """Runs until every rank has ended and its output is through.

    Tells the user through `outlet`, like what ranks write; with `verbose` also details.
    """

    def __init__(self, signals, guard, daemon, grace_seconds, outlet, verbose):
        self._signals = signals
        self._guard = guard
        self._daemon = daemon  # A Popen object, or None.
        self._grace_seconds = grace_seconds
        self._outlet = outlet
        self._verbose = verbose
        self._oom = failure.OomCounter()
        self._ranks = []
        self._streams = []
        self._blocked = set()  # Outlets whose readers are slow; their streams are not read.
        # Unlike epoll, poll takes descriptors of every kind.
        self._selector = selectors.PollSelector()
        self._watch(signals.read_end, selectors.EVENT_READ, self._on_signals)
        self._first_failure = None
        self._ending_signal = None
        self._write_error = None
        self._next_signal = None  # (when, signal): the next step of ending the ranks.

    def say(self, text, detail=False):
        """Tells the user. Never waits: where nobody reads, the job is looked after all the same."""
        if detail and not self._verbose:
            return
        try:
            self._outlet.put(f'ruedarun: {text}\n'.encode(errors='backslashreplace'))
        except OSError:
            return
        if self._outlet.blocked and self._outlet not in self._blocked:
            self._pause(self._outlet)

    def add(self, rank, streams):
        """Takes a started rank and its output streams in."""
        self._guard.watch(rank.pid)
        self._ranks.append(rank)
        self._streams += streams
        self._read(streams)

    def goes_on(self, seconds=0.0):
        """Does what has come up, waiting at most `seconds` for it; False once the job is to end:
        then no further rank should be started."""
        self._turn(time.monotonic() + seconds)
        return self._ending_signal is None and self._first_failure is None

    def run(self):
        """Returns the exit status for the launcher: 0, that of the rank that failed first
        (128 + signal), or 128 + the signal that ended the launcher. Raises the OSError that kept
        output from being written, when all ranks have ended."""
        while any(rank.status is None for rank in self._ranks):
            self._turn(self._next_signal[0] if self._next_signal else None)
        self._next_signal = None
        self._sweep_groups()
        self._drain()
        for stream in self._streams:
            stream.close()
        self._selector.close()
        if self._write_error is not None:
            raise self._write_error
        if self._ending_signal is not None:
            return 128 + self._ending_signal
        return failure.exit_code(self._first_failure.status) if self._first_failure else 0

    def verdict(self):
        """Which rank failed first and how, as a dict; None where none did."""
        rank = self._first_failure
        return rank and {'rank': rank.number, 'killed': rank.status < 0,
                         'how': failure.describe(rank.status, self._oom.kills())}

    def _drain(self):
        deadline = time.monotonic() + _DRAIN_SECONDS
        while self._streams or self._blocked:
            begin = time.monotonic()
            if self._blocked and self._ending_signal is None:
                # A reader may be as slow as it likes, e.g. a pager.
                self._turn(None)
                deadline += time.monotonic() - begin
            elif begin < deadline:
                self._turn(deadline)
            else:
                break

    def _turn(self, deadline):
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        for key, _ in self._selector.select(timeout):
            key.data()
        if self._next_signal is not None and time.monotonic() >= self._next_signal[0]:
            number = self._next_signal[1]
            self._next_signal = None
            if number == signal.SIGTERM:
                self._schedule(signal.SIGKILL, self._grace_seconds)
            self._signal_groups(number)

    def _schedule(self, number, seconds):
        self._next_signal = time.monotonic() + seconds, number

    def _watch(self, descriptor, events, callback):
        self._selector.register(descriptor, events, callback)

    def _ignore(self, descriptor):
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def _read(self, streams):
        for stream in streams:
            self._watch(stream.read_end, selectors.EVENT_READ,
                        functools.partial(self._pump, stream))

    def _pump(self, stream):
        if stream not in self._streams or stream.outlet in self._blocked:
            return  # Since it was found readable.
        try:
            more = stream.pump()
        except BrokenPipeError:
            self._on_reader_gone(stream.outlet)
            return
        except OSError as error:
            self._on_write_error(error, [stream])
            return
        if not more:
            self._drop(stream)
        if stream.outlet.blocked:
            self._pause(stream.outlet)

    def _drop(self, stream):
        self._ignore(stream.read_end)
        self._streams.remove(stream)
        stream.close()

    def _streams_to(self, outlet):
        return [stream for stream in self._streams if stream.outlet is outlet]

    def _pause(self, outlet):
        self._blocked.add(outlet)
        for stream in self._streams_to(outlet):
            self._ignore(stream.read_end)
        self._watch(outlet.descriptor, selectors.EVENT_WRITE,
                    functools.partial(self._flush, outlet))

    def _flush(self, outlet):
        try:
            outlet.flush()
        except BrokenPipeError:
            self._on_reader_gone(outlet)
            return
        except OSError as error:
            self._forget(outlet)
            self._on_write_error(error, self._streams_to(outlet))
            return
        if not outlet.blocked:
            self._blocked.remove(outlet)
            self._ignore(outlet.descriptor)
            self._read(self._streams_to(outlet))

    def _on_reader_gone(self, outlet):
        # End as any program of a pipeline does, unless the end has begun.
        if self._ending_signal is None and self._first_failure is None:
            self._end(signal.SIGPIPE)
        self._forget(outlet)
        for stream in self._streams_to(outlet):
            self._drop(stream)

    def _on_write_error(self, error, streams):
        # What the ranks say from now on would be lost: they end, in good order.
        if self._write_error is None:
            self._write_error = error
            if self._ending_signal is None:
                self._end(signal.SIGTERM)
        for stream in streams:
            self._drop(stream)

    def _forget(self, outlet):
        self._blocked.discard(outlet)
        self._ignore(outlet.descriptor)

    def _on_signals(self):
        for number in self._signals.take():
            if number == signal.SIGCHLD:
                continue
            self.say(f'received {signal.Signals(number).name}, passing it on to the ranks', True)
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
            self._schedule(signal.SIGKILL, self._grace_seconds)
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
            self.say('the daemon ended: '
                      + failure.describe(self._daemon.returncode, self._oom.kills()))
            self._daemon = None

    def _on_first_failure(self, rank):
        self._first_failure = rank
        others = sum(other.status is None for other in self._ranks)
        self.say(f'rank {rank.number} (pid {rank.pid}) failed first: '
                  + failure.describe(rank.status, self._oom.kills())
                  + (f'; ending {others} more' if others else ''))
        rank.signal_group(signal.SIGTERM)  # Its children.
        self._schedule(signal.SIGTERM, _OWN_END_SECONDS)

    def _signal_groups(self, number):
        for rank in self._ranks:
            rank.signal_group(number)

    def _sweep_groups(self):
        # Children that a rank left behind.
        for rank in self._ranks:
            rank.signal_group(signal.SIGKILL)
            self._guard.forget(rank.pid)
