# SPDX-License-Identifier: Apache-2.0
"""Ranks as forked processes that run a function of the test. Thread of pytest.

A rank talks with the test over a pair of sockets (`tell`, `hear`), so that no test has to guess how
far it is. It dies with the process that made it.
"""

import ctypes
import os
import signal
import time
import traceback
from multiprocessing import Pipe

from kit import native

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE = 1, 4
_libc = ctypes.CDLL(None, use_errno=True)


class RankFailed(AssertionError):
    """A body raised, or its process ended without a result."""


class Rank:
    """What a body gets: its place, and the line to the test. Lives in the forked process."""

    def __init__(self, number, size, socket, job, options, line):
        self.number, self.size, self.socket, self.job = number, size, socket, job
        self._options, self._line = options, line

    def open(self, **options):
        """A Session in this rank's place."""
        return native.Session(self.socket, self.job, self.number, self.size,
                              **{**self._options, **options})

    def tell(self, value=None):
        """Sends a value to the test."""
        self._line.send(('told', value))

    def hear(self):
        """The next value that the test sends."""
        return self._line.recv()

    def has_mail(self):
        """Whether hear() would return at once."""
        return self._line.poll(0)


class Member:
    """The test's end of one rank."""

    def __init__(self, number, pid, line):
        self.number, self.pid, self._line = number, pid, line
        self._status = None

    def tell(self, value=None):
        """Sends a value to the rank; one that has ended does not hear it."""
        try:
            self._line.send(value)
        except BrokenPipeError:
            pass  # Its result says why.

    def hear(self, seconds=20):
        """The next value the rank tells. Raises RankFailed if it ended instead, or is silent."""
        kind, value = self._receive(seconds)
        if kind != 'told':
            raise RankFailed(f'rank {self.number} ended ({kind}: {value}) instead of telling')
        return value

    def result(self, seconds=30):
        """What the body returned; values told before are skipped. Raises RankFailed."""
        deadline = time.monotonic() + seconds
        while True:
            kind, value = self._receive(max(0.0, deadline - time.monotonic()))
            if kind == 'end':
                return value
            if kind == 'error':
                raise RankFailed(f'rank {self.number}: {value}')

    def _receive(self, seconds):
        try:
            if not self._line.poll(seconds):
                raise RankFailed(f'rank {self.number} (pid {self.pid}) is silent for '
                                 f'{seconds:.1f} s')
            return self._line.recv()
        except (EOFError, ConnectionResetError):
            raise RankFailed(f'rank {self.number} (pid {self.pid}) has died') from None

    def signal(self, number):
        """Sends a signal; returns the moment before."""
        now = time.monotonic()
        os.kill(self.pid, number)
        return now

    def kill(self, reap=True):
        """SIGKILL; returns the moment before."""
        now = self.signal(signal.SIGKILL)
        if reap:
            self.reap()
        return now

    def reap(self):
        """Waits for its end; returns the wait status."""
        if self._status is None:
            self._status = os.waitpid(self.pid, 0)[1]
        return self._status

    def close(self):
        """Ends it in any case."""
        if self._status is None:
            self.kill()
        self._line.close()


def start(body, *arguments, number=0, size=1, socket='', job='job', uid=None, keep=(), **options):
    """Forks one rank that runs `body(rank, *arguments)`; returns its Member.

    `options` go to the Session that rank.open() makes. `uid`: the process becomes that user.
    `keep`: descriptors that it inherits.
    """
    ours, theirs = Pipe()
    pid = os.fork()
    if pid == 0:
        _run(body, arguments, Rank(number, size, socket, job, options, theirs), theirs, uid, keep)
    theirs.close()
    return Member(number, pid, ours)


def _run(body, arguments, rank, line, uid, keep):
    status = 1
    try:
        for number in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        first = 3
        for kept in sorted((line.fileno(), *keep)):
            os.closerange(first, kept)
            first = kept + 1
        os.closerange(first, 1 << 16)
        if uid is not None:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            _libc.prctl(_PR_SET_DUMPABLE, 1)  # As a process is that was started by that user.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        line.send(('end', body(rank, *arguments)))
        status = 0
    except BaseException:  # Whatever it is, the test must hear of it.
        line.send(('error', traceback.format_exc()))
    finally:
        os._exit(status)


class Group:
    """The ranks of one job, each running `body(rank, *arguments)`."""

    def __init__(self, socket, size, body, *arguments, job='job', uid=None, numbers=None,
                 **options):
        self.members = [start(body, *arguments, number=number, size=size, socket=socket, job=job,
                              uid=uid, **options)
                        for number in (range(size) if numbers is None else numbers)]

    def __getitem__(self, number):
        return self.members[number]

    def __iter__(self):
        return iter(self.members)

    @property
    def pids(self):
        """Process ids by rank."""
        return [member.pid for member in self.members]

    def hear(self, seconds=20):
        """One told value of each rank."""
        return [member.hear(seconds) for member in self.members]

    def tell(self, value=None):
        """Sends a value to every rank."""
        for member in self.members:
            member.tell(value)

    def results(self, seconds=30):
        """What the bodies returned, by rank."""
        deadline = time.monotonic() + seconds
        return [member.result(max(0.1, deadline - time.monotonic())) for member in self.members]

    def close(self):
        """Ends all of them."""
        for member in self.members:
            member.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def run(socket, size, body, *arguments, seconds=30, **options):
    """Runs a body on `size` ranks of one job; returns their results by rank."""
    with Group(socket, size, body, *arguments, **options) as group:
        return group.results(seconds)


class Burners:
    """Processes that keep `count` cores busy while this object is open."""

    def __init__(self, count):
        self._members = [start(_burn) for _ in range(count)]
        for member in self._members:
            member.hear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self._members:
            member.close()


def _burn(rank):
    rank.tell()
    while True:
        pass
