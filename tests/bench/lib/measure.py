# SPDX-License-Identifier: Apache-2.0
"""Measures cells: all ways that are compared at one size alternate within seconds."""
import os
import subprocess
import sys
from collections import namedtuple
from contextlib import contextmanager

from lib.contenders import CONTENDERS, Setting
from lib.gang import Gang, GangError
from lib.peers import say
from lib.rows import BUSY, ITERATIONS, bytes_of

# Rows that share one measurement.
Cell = namedtuple("Cell", "ranks workload rows")


def cells_of(rows):
    """Groups rows by (ranks, workload), in order of first appearance."""
    grouped = {}
    for row in rows:
        grouped.setdefault((row.ranks, row.workload), []).append(row)
    return [Cell(ranks, workload, tuple(group)) for (ranks, workload), group in grouped.items()]


def is_large(cell):
    """Whether its tensors are of 64 MiB or more a rank."""
    return bytes_of(cell.workload) >= 64 << 20


def ways_of(cell):
    """Every way of the cell once, ours and the peers' mixed in the order of its rows."""
    ways = []
    for row in cell.rows:
        ways += [way for way in [row.ours, *row.peers, *row.limits] if way not in ways]
    return ways


@contextmanager
def busy_cores(count):
    """`count` processes that compute without a pause."""
    members = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
               for _ in range(count)]
    try:
        yield
    finally:
        for member in members:
            member.kill()
        for member in members:
            member.wait()


class Bench:
    """Holds the gangs that run. One thread. Stop it with stop()."""

    def __init__(self, peers, daemon, rounds, quick):
        self._peers, self._daemon, self._rounds, self._quick = peers, daemon, rounds, quick
        self._gangs = {}
        self.failures = {}  # (contender, ranks) -> why it is out.

    def run_cell(self, cell):
        """{way: [Sample, ...]}, one Sample a round; a way that failed is missing."""
        ways = ways_of(cell)
        samples = {way: [] for way in ways}
        with busy_cores((os.cpu_count() or 1) if cell.workload.endswith(BUSY) else 0):
            for number in range(self._rounds):
                # Every other round runs backwards, so that a drift of the machine cancels out.
                for way in ways if number % 2 == 0 else reversed(ways):
                    sample = self._sample(way, cell)
                    if sample is not None:
                        samples[way].append(sample)
        return {way: found for way, found in samples.items() if len(found) == self._rounds}

    def gang(self, contender, ranks):
        """The running gang of a contender, started when needed. Raises GangError."""
        key = contender, ranks
        if key in self.failures:
            raise GangError(self.failures[key])
        if key not in self._gangs:
            self._gangs[key] = self._start(contender, ranks)
        return self._gangs[key]

    def keep_only(self, wanted):
        """Stops the gangs that are not in `wanted`, a set of (contender, ranks)."""
        leaving = [key for key in self._gangs if key not in wanted]
        for key in leaving:
            self._gangs[key].leave()
        for key in leaving:
            self._gangs.pop(key).stop()

    def stop(self):
        """Stops all gangs."""
        self.keep_only(set())

    def _start(self, name, ranks):
        contender = CONTENDERS[name]
        for need in contender.needs:
            if need in self._peers.problems:
                raise GangError(f"{name}: {self._peers.problems[need]}")
        if contender.daemon and self._daemon is None:
            raise GangError(f"{name}: no daemon")
        socket = self._daemon.socket if self._daemon else ""
        job = f"bench-{name}-{ranks}-{os.getpid()}"
        processes = 1 if name == "limit" else ranks
        return Gang(name, processes, lambda folder: contender.launch(
            Setting(self._peers, ranks, folder, socket, job)), self._peers.logs)

    def _sample(self, way, cell):
        """One command of one gang, or None; a gang that fails is out for the rest of the run."""
        key = way.contender, cell.ranks
        iterations = ITERATIONS[cell.workload][1 if self._quick else 0]
        if CONTENDERS[way.contender].slow:
            iterations = max(3, iterations // 3)
        try:
            return self.gang(*key).run(way.kind, bytes_of(cell.workload), iterations)
        except GangError as error:
            self._gangs.pop(key, None)
            if key not in self.failures:
                self.failures[key] = str(error)
                say(f"bench: {way.contender} with {cell.ranks} ranks is out: {error}")
            return None
