# SPDX-License-Identifier: Apache-2.0
"""What the same news would take without rueda: a measure of how busy the machine is.

Thread of pytest.
"""

import mmap
import os
import random
import statistics
import time

from kit import ranks

# What a rank has done by the time it waits in one of kit/steps.py: mapped this much memory, and
# worked for this long to open its session. The kernel makes who has worked wait for the others.
_RANK_MEMORY = 8 << 20
_RANK_WORK = 0.008


def death_delay(as_ranks=False):
    """Seconds from a SIGKILL until the last of two processes hears of it, each from the one before.

    As many wake-ups as from a killed rank over the daemon to its peers, and nothing else. With
    `as_ranks` the victim and the last have worked and mapped memory as ranks do, and the kill comes
    within 4 ms after they began to wait.
    """
    first_read, first_write = os.pipe()
    second_read, second_write = os.pipe()
    last = ranks.start(_tell_time, second_read, as_ranks, keep=(second_read,))
    middle = ranks.start(_pass_on, first_read, second_write, keep=(first_read, second_write))
    victim = ranks.start(_hold, as_ranks, keep=(first_write,))
    for end in (first_read, first_write, second_read, second_write):
        os.close(end)
    members = (last, middle, victim)
    for member in members:
        member.hear()
    if as_ranks:
        time.sleep(random.random() * 0.004)
    killed = victim.kill()
    delay = last.result() - killed
    for member in members:
        member.close()
    return delay


def is_within(seconds, limit, wakeups=3):
    """Whether `seconds` is within `limit`, plus what this machine takes for so many bare wake-ups.

    The latter is measured only where it matters: beside other work a wake-up takes milliseconds.
    """
    if seconds <= limit:
        return True
    one = statistics.median(death_delay() for _ in range(7)) / 2
    return seconds <= limit + wakeups * one


def _work_as_rank():
    """Maps and touches memory, then works on; returns the memory."""
    until = time.process_time() + _RANK_WORK
    memory = mmap.mmap(-1, _RANK_MEMORY)
    for offset in range(0, _RANK_MEMORY, mmap.PAGESIZE):
        memory[offset] = 1
    while time.process_time() < until:
        pass
    return memory


def _hold(rank, as_rank):
    held = _work_as_rank() if as_rank else None
    rank.tell()
    rank.hear()
    del held


def _pass_on(rank, read_end, write_end):
    rank.tell()
    os.read(read_end, 1)
    os.close(write_end)


def _tell_time(rank, read_end, as_rank):
    held = _work_as_rank() if as_rank else None
    rank.tell()
    os.read(read_end, 1)
    when = time.monotonic()
    del held
    return when
