# SPDX-License-Identifier: Apache-2.0
"""Rows without a peer: opening, memory, and what everything costs while nothing happens."""
import os
import statistics
import time
from fnmatch import fnmatchcase

from lib.daemon import cpu_seconds, memory_mib, thread_count
from lib.gang import GangError
from lib.measure import busy_cores
from lib.peers import say
from lib.report import failed_line, value_line

REOPEN_LIMIT_MS = 20.0     # Close and open again, also while all cores are busy.
REOPENS = 200              # While they are.
IDLE_LIMIT_PERCENT = 0.1   # Of one core, for daemon and clients together.
MEMORY_BYTES = 64 << 20    # Two fused tensors of this size, then memory is read again.

NAMES = ("open-r2-ms", "reopen-r2-ms", "reopen-p99-r2-ms", "reopen-busy-r2-ms",
         "reopen-busy-p99-r2-ms", "open-r4-ms", "reopen-r4-ms", "reopen-busy-r4-ms",
         "memory-daemon-empty-rss-mib", "memory-daemon-empty-pss-mib", "memory-daemon-job-rss-mib",
         "memory-daemon-job-pss-mib", "memory-daemon-after-64M-pss-mib", "memory-client-open-mib",
         "memory-client-after-64M-mib", "idle-cpu-percent", "idle-daemon-cpu-percent",
         "idle-client-threads", "idle-daemon-threads")


def life_lines(bench, daemon, globs, quick):
    """The printed lines that the globs name. `bench` must have no gangs running on the daemon."""
    wanted = [n for n in NAMES if not globs or any(fnmatchcase(n, glob) for glob in globs)]
    if not wanted:
        return []
    lines = {}
    for ranks, measure in ((2, _two_ranks), (4, _four_ranks)):
        try:
            measure(bench, daemon, lines, quick)
        except (GangError, OSError, AttributeError) as error:
            say(f"bench: life cycle with {ranks} ranks: {error}")
    return [lines.get(name) or failed_line(name, 4 if "-r4-" in name else 2) for name in wanted]


def _put(lines, name, value, most=None):
    lines[name] = value_line(name, 4 if "-r4-" in name else 2, value, most)


def _two_ranks(bench, daemon, lines, quick):
    """Open, idle, memory and reopen of a job of two ranks."""
    resident, proportional = memory_mib(daemon.pid)
    _put(lines, "memory-daemon-empty-rss-mib", resident)
    _put(lines, "memory-daemon-empty-pss-mib", proportional)
    gang = bench.gang("rueda-life", 2)
    _put(lines, "open-r2-ms", gang.run("open", 0, 1).p50 / 1e3)
    resident, proportional = memory_mib(daemon.pid)
    _put(lines, "memory-daemon-job-rss-mib", resident)
    _put(lines, "memory-daemon-job-pss-mib", proportional)
    before_kib, after_kib, _, _ = gang.run("memory", 0, 1)
    _put(lines, "memory-client-open-mib", (after_kib - before_kib) / 1024)
    gang.run("shared-sync", 4, 1000)
    _idle(daemon, gang, lines, 3 if quick else 8)
    gang.run("shared-sync", MEMORY_BYTES, 3)
    _put(lines, "memory-daemon-after-64M-pss-mib", memory_mib(daemon.pid)[1])
    before_kib, _, now_kib, _ = gang.run("memory", 0, 1)
    _put(lines, "memory-client-after-64M-mib", (now_kib - before_kib) / 1024)
    rounds = [gang.run("reopen", 0, 10) for _ in range(3 if quick else 5)]
    _put(lines, "reopen-r2-ms", statistics.median(s.p50 for s in rounds) / 1e3, REOPEN_LIMIT_MS)
    _put(lines, "reopen-p99-r2-ms", max(s.p99 for s in rounds) / 1e3)
    busy = _reopen_busy(gang)
    _put(lines, "reopen-busy-r2-ms", busy.mean / 1e3, REOPEN_LIMIT_MS)
    _put(lines, "reopen-busy-p99-r2-ms", busy.p99 / 1e3)


def _four_ranks(bench, _daemon, lines, quick):
    """Open and reopen of a job of four ranks."""
    gang = bench.gang("rueda-life", 4)
    _put(lines, "open-r4-ms", gang.run("open", 0, 1).p50 / 1e3)
    rounds = [gang.run("reopen", 0, 10) for _ in range(3 if quick else 5)]
    _put(lines, "reopen-r4-ms", statistics.median(s.p50 for s in rounds) / 1e3, REOPEN_LIMIT_MS)
    _put(lines, "reopen-busy-r4-ms", _reopen_busy(gang).mean / 1e3, REOPEN_LIMIT_MS)


def _reopen_busy(gang):
    with busy_cores(os.cpu_count() or 1):
        return gang.run("reopen", 0, REOPENS)


def _idle(daemon, gang, lines, seconds):
    """Processor time of daemon and ranks over a quiet span, after a second to settle."""
    time.sleep(1)  # The span itself is the measurement: nothing is waited for.
    clients = gang.pids()
    before = cpu_seconds(daemon.pid), sum(map(cpu_seconds, clients))
    begin = time.monotonic()
    time.sleep(seconds)
    span = time.monotonic() - begin
    daemon_share = (cpu_seconds(daemon.pid) - before[0]) / span * 100
    client_share = (sum(map(cpu_seconds, clients)) - before[1]) / span * 100
    _put(lines, "idle-cpu-percent", daemon_share + client_share, IDLE_LIMIT_PERCENT)
    _put(lines, "idle-daemon-cpu-percent", daemon_share)
    _put(lines, "idle-client-threads", max(map(thread_count, clients)))
    _put(lines, "idle-daemon-threads", thread_count(daemon.pid))
