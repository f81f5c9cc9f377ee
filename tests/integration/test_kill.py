# SPDX-License-Identifier: Apache-2.0
"""Clients killed with SIGKILL at every step: their peers learn who, at once; others notice nothing."""

import os
import statistics
import time

import pytest

from kit import counters, native, ranks, reference, steps
from kit.neighbour import Neighbour

_RANKS = 3
# On top of what a busy machine takes for the same wake-ups, measured beside (kit/reference.py).
_MEDIAN_LIMIT = 0.010
_WORST_LIMIT = 0.200
_REFERENCES_A_ROUND = 4
# What the daemon's allocator may keep over a run; a leak of one control segment a kill is 100 times
# as much.
_KEPT_BYTES = 8 << 20


def _until_failure(rank, step, victim):
    """Runs a step; returns the moment of its failure, the code and the text."""
    session = rank.open(isolated=steps.is_isolated(step))
    try:
        steps.STEPS[step](rank, session, victim)
    except native.Failure as failure:
        return time.monotonic(), failure.code, failure.text
    raise AssertionError('the step ended without a failure')


def _kill_once(daemon, step, dice, job):
    """Kills one rank of a fresh job; returns the seconds from the kill to each peer's error."""
    victim = dice.randrange(_RANKS)
    with ranks.Group(daemon.socket, _RANKS, _until_failure, step, victim, job=job) as group:
        group.hear()
        time.sleep(dice.random() * 0.004)  # A random moment of the step, not a synchronisation.
        at_once = dice.random() < 0.5
        killed = group[victim].kill(reap=at_once)
        peers = [member for member in group if member.number != victim]
        told = time.monotonic() if steps.hears_first(step) else killed
        if steps.hears_first(step):
            for peer in peers:
                peer.tell()
        delays = []
        for peer in peers:
            when, code, text = peer.result(10)
            assert code == native.RANK_LOST, (step, code, text)
            wanted = (f'rank {victim} ', f'pid {group[victim].pid} ', 'on host testhost',
                      'killed by signal 9')
            assert all(part in text for part in wanted), (step, text)
            delays.append(when - told)
        return delays


def _kill_often(daemon, dice, rounds, measured):
    """Kills `rounds` times at each step beside a neighbour; asserts the bounds."""
    delays = {step: [] for step in steps.STEPS}
    references = []
    before = daemon.settled_holdings()
    resident = None
    with Neighbour(daemon.socket) as neighbour:
        for number in range(rounds):
            for step in dice.sample(list(steps.STEPS), len(steps.STEPS)):
                delays[step] += _kill_once(daemon, step, dice, f'victims {number}')
            references += [reference.death_delay() for _ in range(_REFERENCES_A_ROUND)]
            if number == 2:
                resident = counters.resident_bytes(daemon.pid)
        summed, slowest = neighbour.stop()
    everything = [delay for one in delays.values() for delay in one]
    worst = {step: f'{max(one) * 1000:.1f}' for step, one in delays.items()}
    measured(f'{len(everything) // 2} kills: median {statistics.median(everything) * 1000:.2f} ms, '
             f'p99 {counters.percentile(everything, 0.99) * 1000:.1f} ms, worst by step {worst}; '
             f'bare wake-ups: median {statistics.median(references) * 1000:.2f} ms, worst '
             f'{max(references) * 1000:.1f} ms; '
             f'neighbour: {summed} rounds right, slowest {slowest * 1000:.0f} ms')
    assert statistics.median(everything) <= _MEDIAN_LIMIT + 2 * statistics.median(references)
    assert max(everything) <= _WORST_LIMIT + 2 * max(references), worst
    counters.await_holdings(daemon.pid, before)
    status, _ = daemon.ctl('status')
    assert status['memory']['shared_bytes'] == 0 and status['jobs'] == []
    grown = counters.resident_bytes(daemon.pid) - resident
    assert grown < _KEPT_BYTES, f'the daemon has grown by {grown} bytes'


@pytest.mark.seconds(120)
@pytest.mark.parametrize('busy_cores', [0, os.cpu_count()])
def test_peers_of_a_killed_rank_learn_who_at_once(daemon, dice, measured, busy_cores):
    with ranks.Burners(busy_cores):
        _kill_often(daemon, dice, 7, measured)


@pytest.mark.long
@pytest.mark.seconds(1100)
def test_ten_thousand_kills_leave_nothing(daemon, dice, measured):
    _kill_often(daemon, dice, 10000 // len(steps.STEPS) + 1, measured)
