# SPDX-License-Identifier: Apache-2.0
"""A job that works beside the one that a test harms, and must notice nothing."""

import time

from kit import native, ranks

_PACE = 0.002  # Between rounds, so that it does not take a core for itself.


class Neighbour:
    """Two ranks that sum by every path until stop(), and check each result."""

    def __init__(self, socket, job='neighbour', uid=None):
        self._group = ranks.Group(socket, 2, _work, job=job, uid=uid)
        self._group.hear()

    @property
    def pids(self):
        """Its process ids."""
        return self._group.pids

    def stop(self, seconds=20):
        """Ends it; returns (rounds, slowest round in seconds). Raises RankFailed on a wrong sum."""
        self._group[0].tell('stop')
        results = self._group.results(seconds)
        self._group.close()
        assert results[0][0] == results[1][0] > 0, results
        return results[0][0], max(result[1] for result in results)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._group.close()


def _work(rank):
    with rank.open() as session:
        buffers = {
            'tiny': session.alloc(4), 'arena': session.alloc(40000),
            'foreign': native.Buffer.foreign(50000), 'async': session.alloc(30000)}
        going_on = session.alloc(1)
        rounds, slowest = 0, 0.0
        rank.tell()
        while True:
            begin = time.monotonic()
            for name in ('tiny', 'arena', 'foreign'):
                buffers[name].fill(rounds + rank.number)
                session.allreduce(name, buffers[name])
            buffers['async'].fill(rounds + rank.number)
            session.wait(session.submit(native.make_op(native.ALLREDUCE, 'async',
                                                       buffers['async'])))
            wrong = [name for name, buffer in buffers.items() if not buffer.holds(2 * rounds + 1)]
            if wrong:
                raise AssertionError(f'round {rounds}: wrong sums in {wrong}')
            going_on.fill(0 if rank.number == 0 and rank.has_mail() else 1)
            session.broadcast('going on', going_on)
            rounds += 1
            slowest = max(slowest, time.monotonic() - begin)
            if going_on.holds(0):
                return rounds, slowest
            time.sleep(_PACE)
