# SPDX-License-Identifier: Apache-2.0
"""What every hostile test asserts besides its own point. Thread of pytest."""

from kit import counters
from kit.neighbour import Neighbour


class Guard:
    """Starts daemons with a job on each that must notice nothing; close() checks that the daemons
    live, the sums were right, and nothing is held that was not held before."""

    def __init__(self, daemons):
        self._daemons = daemons
        self._made = []

    def __call__(self, *flags, **options):
        daemon = self._daemons(*flags, **options)
        before = daemon.settled_holdings()
        self._made.append((daemon, before, Neighbour(daemon.socket)))
        return daemon

    def check(self):
        """Asserts all of it. Raises AssertionError."""
        for daemon, before, neighbour in self._made:
            assert daemon.is_alive(), daemon.log()
            assert neighbour.stop()[0] > 0
            counters.await_holdings(daemon.pid, before)
