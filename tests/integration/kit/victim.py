# SPDX-License-Identifier: Apache-2.0
"""A job whose latencies are measured while something else happens. Thread of pytest."""

import time

from kit import counters, native, ranks

_BYTES = 4096


class Victim:
    """Two ranks that run asynchronous allreduces of 4 KiB, and check each."""

    def __init__(self, socket, job='victim'):
        self._group = ranks.Group(socket, 2, _serve, job=job)
        self._group.hear()

    def latencies(self, seconds):
        """Seconds of each operation on rank 0 during a window of `seconds`."""
        self._group.tell(seconds)
        measured = self._group.hear(seconds + 20)
        return measured[0]

    def close(self):
        """Ends it."""
        self._group.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _serve(rank):
    with rank.open() as session:
        buffer = session.alloc(_BYTES // 4)
        going_on = session.alloc(1)
        rank.tell()
        while True:
            rank.tell(_window(rank, session, buffer, going_on, rank.hear()))


def _window(rank, session, buffer, going_on, seconds):
    end = time.monotonic() + seconds
    took = []
    while True:
        for number in range(20):
            buffer.fill(number + rank.number)
            op = native.make_op(native.ALLREDUCE, 'measured', buffer)
            begin = time.monotonic()
            session.wait(session.submit(op))
            took.append(time.monotonic() - begin)
            assert buffer.holds(2 * number + 1), f'wrong sum {number}'
        going_on.fill(0 if time.monotonic() >= end else 1)
        session.broadcast('going on', going_on)
        if going_on.holds(0):
            return took


def compare(victim, quiet, loud, windows=5, seconds=0.4):
    """p99 in seconds, (quiet, loud): medians over alternating windows.

    `quiet` and `loud` are context managers that are entered for a window each.
    """
    found = ([], [])
    for _ in range(windows):
        for values, state in zip(found, (quiet, loud)):
            with state():
                values.append(counters.percentile(victim.latencies(seconds), 0.99))
    return tuple(sorted(values)[windows // 2] for values in found)
