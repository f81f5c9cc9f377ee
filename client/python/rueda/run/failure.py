# SPDX-License-Identifier: Apache-2.0
"""Puts into words how a process ended. Reads /proc and cgroup files, changes nothing."""

import os
import signal


def exit_code(status):
    """What a shell would report for a Popen return code: the code, or 128 + signal."""
    return 128 - status if status < 0 else status


def describe(status, oom_kills):
    """E.g. 'exit code 3', or 'killed by signal 9 (SIGKILL)' with a hint where memory ran out.

    `oom_kills`: processes that the kernel killed for memory while the job ran.
    """
    if status >= 0:
        return f'exit code {status}'
    number = -status
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = 'unknown'
    text = f'killed by signal {number} ({name})'
    if number == signal.SIGKILL:
        if oom_kills > 0:
            text += (f'; the kernel killed {oom_kills} process(es) for lack of memory meanwhile, '
                     'probably this one: give the job more memory or lower the batch size')
        else:
            text += '; no lack of memory was recorded on this host'
    return text


class OomCounter:
    """Counts processes that the kernel killed for lack of memory since construction."""

    def __init__(self, vmstat='/proc/vmstat', cgroup='/proc/self/cgroup', root='/sys/fs/cgroup'):
        self._files = [vmstat]
        for line in _lines(cgroup):
            hierarchy, _, path = line.partition('::')
            if hierarchy == '0':  # cgroup v2
                self._files.append(os.path.join(root, path.lstrip('/'), 'memory.events'))
        self._before = self._counts()

    def kills(self):
        """Kills since construction, as far as the kernel tells."""
        return max(now - before for now, before in zip(self._counts(), self._before))

    def _counts(self):
        return [next((int(line.split()[1]) for line in _lines(path)
                      if line.startswith('oom_kill ')), 0) for path in self._files]


def _lines(path):
    try:
        with open(path, encoding='ascii', errors='replace') as file:
            return file.read().splitlines()
    except OSError:
        return []
