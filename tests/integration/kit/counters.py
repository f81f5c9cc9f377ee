# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of a process: descriptors, mappings, threads, memory, time. Any thread."""

import collections
import os

from kit import waiting

_PAGE = os.sysconf('SC_PAGE_SIZE')
_TICKS = os.sysconf('SC_CLK_TCK')

Holdings = collections.namedtuple('Holdings', 'fds memfds mappings threads')


def _read(pid, name):
    with open(f'/proc/{pid}/{name}', encoding='utf-8', errors='replace') as file:
        return file.read()


def descriptors(pid):
    """What each open descriptor is, e.g. 'socket:[123]' or '/memfd:rueda-board (deleted)'."""
    targets = []
    for number in os.listdir(f'/proc/{pid}/fd'):
        try:
            targets.append(os.readlink(f'/proc/{pid}/fd/{number}'))
        except FileNotFoundError:
            pass  # Closed between the two calls.
    return targets


def holdings(pid):
    """Holdings of a daemon: descriptors, those of segments, mapped segments, threads."""
    targets = descriptors(pid)
    return Holdings(len(targets), sum('/memfd:' in target for target in targets),
                    _read(pid, 'maps').count('/memfd:'), len(os.listdir(f'/proc/{pid}/task')))


def await_holdings(pid, wanted, seconds=5):
    """Waits until a process holds no more than `wanted`. Raises TooLate with the difference."""
    def good():
        have = holdings(pid)
        return all(a <= b for a, b in zip(have, wanted))

    waiting.until(good, seconds, lambda: f'{holdings(pid)} holds more than {wanted}: '
                                         f'{collections.Counter(descriptors(pid)).most_common(8)}')


def resident_bytes(pid):
    """Resident memory without shared segments: what the process has allocated for itself."""
    for line in _read(pid, 'status').splitlines():
        if line.startswith('RssAnon:'):
            return int(line.split()[1]) * 1024
    raise AssertionError('no RssAnon')


def total_resident_bytes(pid):
    """Resident memory of all kinds."""
    return int(_read(pid, 'statm').split()[1]) * _PAGE


def cpu_ticks(pid):
    """utime + stime in clock ticks (10 ms)."""
    fields = _read(pid, 'stat').rsplit(')', 1)[1].split()
    return int(fields[11]) + int(fields[12])


def cpu_seconds(pid):
    """Processor time of all threads by the scheduler's nanosecond clock."""
    total = 0
    for thread in os.listdir(f'/proc/{pid}/task'):
        try:
            total += int(_read(pid, f'task/{thread}/schedstat').split()[0])
        except FileNotFoundError:
            pass  # The thread has just ended.
    return total / 1e9


def thread_count(pid):
    """Threads of a process."""
    return len(os.listdir(f'/proc/{pid}/task'))


def state(pid):
    """Its state letter ('S', 'T', 'Z'), or '' when it is gone."""
    try:
        return _read(pid, 'stat').rsplit(')', 1)[1].split()[0]
    except FileNotFoundError:
        return ''


def available_bytes():
    """MemAvailable."""
    with open('/proc/meminfo', encoding='ascii') as file:
        for line in file:
            if line.startswith('MemAvailable:'):
                return int(line.split()[1]) * 1024
    return 0


def abstract_sockets(containing):
    """Abstract socket names of this network namespace that contain a text."""
    with open('/proc/net/unix', encoding='utf-8', errors='replace') as file:
        names = [line.split()[7] for line in file if len(line.split()) > 7]
    return sorted({name for name in names if name.startswith('@') and containing in name})


def percentile(values, share):
    """The value below which `share` (0..1) of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
