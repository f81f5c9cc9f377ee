# SPDX-License-Identifier: Apache-2.0
"""What the same news would take without rueda: a measure of how busy the machine is.

Thread of pytest.
"""

import os
import statistics
import time

from kit import ranks


def death_delay():
    """Seconds from a SIGKILL until the last of two processes hears of it, each from the one before.

    As many wake-ups as from a killed rank over the daemon to its peers, and nothing else.
    """
    first_read, first_write = os.pipe()
    second_read, second_write = os.pipe()
    last = ranks.start(_tell_time, second_read, keep=(second_read,))
    middle = ranks.start(_pass_on, first_read, second_write, keep=(first_read, second_write))
    victim = ranks.start(_hold, keep=(first_write,))
    for end in (first_read, first_write, second_read, second_write):
        os.close(end)
    members = (last, middle, victim)
    for member in members:
        member.hear()
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


def _hold(rank):
    rank.tell()
    rank.hear()


def _pass_on(rank, read_end, write_end):
    rank.tell()
    os.read(read_end, 1)
    os.close(write_end)


def _tell_time(rank, read_end):
    rank.tell()
    os.read(read_end, 1)
    return time.monotonic()
