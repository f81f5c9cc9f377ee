# SPDX-License-Identifier: Apache-2.0
"""Clients killed with SIGKILL at every step: peers learn who, at once; others notice nothing."""

import os
import statistics
import time

import pytest

from kit import counters, hostile, native, ranks, reference, steps, waiting
from kit.neighbour import Neighbour

_RANKS = 3
# Or twice what the machine takes for the same wake-ups, measured beside (kit/reference.py), if that
# is more.
_MEDIAN_LIMIT = 0.010
_WORST_LIMIT = 0.200
_REFERENCES = 28  # At least, over a run.
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


def _kill_once(daemon, step, dice, job, size):
    """Kills one rank of a fresh job; returns the seconds from the kill to each peer's error."""
    victim = dice.randrange(size)
    with ranks.Group(daemon.socket, size, _until_failure, step, victim, job=job) as group:
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


def _median_and_worst(seconds):
    return round(1000 * statistics.median(seconds)), round(1000 * max(seconds))


def _kill_often(daemon, dice, rounds, measured, names, size=_RANKS):
    """Kills `rounds` times at each step beside a neighbour; asserts the bounds."""
    delays = {step: [] for step in names}
    bare = {True: [], False: []}  # Wake-ups beside ranks that sleep, and beside ranks that work.
    before = daemon.settled_holdings()
    resident = None
    with Neighbour(daemon.socket) as neighbour:
        for number in range(rounds):
            for step in dice.sample(names, len(names)):
                delays[step] += _kill_once(daemon, step, dice, f'victims {number}', size)
            for _ in range(-(-_REFERENCES // rounds)):
                bare[True].append(reference.death_delay(as_ranks=True))
                with ranks.Burners(size):
                    bare[False].append(reference.death_delay(as_ranks=True))
            if number == 2:
                resident = counters.resident_bytes(daemon.pid)
        summed, slowest = neighbour.stop()
    measured(f'{rounds * len(names)} kills; neighbour: {summed} rounds right, slowest '
             f'{slowest * 1000:.0f} ms; median and worst by step in ms: '
             f'{({step: _median_and_worst(one) for step, one in delays.items()})}')
    for sleeps, wakeups in bare.items():
        mine = [delay for step, one in delays.items() if (step in steps.WAITING) == sleeps
                for delay in one]
        median, worst = statistics.median(mine), max(mine)
        measured(f'peers {"sleep" if sleeps else "work"}: median {median * 1000:.2f} ms, worst '
                 f'{worst * 1000:.0f} ms; bare wake-ups: median '
                 f'{statistics.median(wakeups) * 1000:.2f} ms, worst {max(wakeups) * 1000:.0f} ms')
        assert median <= max(_MEDIAN_LIMIT, 2 * statistics.median(wakeups))
        assert worst <= max(_WORST_LIMIT, 2 * max(wakeups))
    counters.await_holdings(daemon.pid, before)
    status, _ = daemon.ctl('status')
    assert status['memory']['shared_bytes'] == 0 and status['jobs'] == []
    grown = counters.resident_bytes(daemon.pid) - resident
    assert grown < _KEPT_BYTES, f'the daemon has grown by {grown} bytes'


@pytest.mark.seconds(120)
@pytest.mark.parametrize('busy_cores', [0, os.cpu_count()])
def test_peers_of_a_killed_rank_learn_who_at_once(daemon, dice, measured, busy_cores):
    with ranks.Burners(busy_cores):
        _kill_often(daemon, dice, 7, measured, list(steps.STEPS))


@pytest.mark.long
@pytest.mark.seconds(1100)
def test_ten_thousand_kills_leave_nothing(daemon, dice, measured):
    names = ['idle', 'waits in direct', 'small direct', 'barrier', 'after submit',
             'waits in async', 'isolated sum', 'groups']
    _kill_often(daemon, dice, 10000 // len(names), measured, names, size=2)


def _greet_partly(rank, sends_hello):
    client = hostile.Client(rank.socket)
    if sends_hello:
        client.send(hostile.hello(job=b'partly', rank=1, size=3))
    rank.tell()
    rank.hear()


@pytest.mark.parametrize('sends_hello', [False, True])
def test_a_process_killed_while_it_greets_leaves_nothing(daemon, sends_hello):
    before = daemon.settled_holdings()
    with Neighbour(daemon.socket) as neighbour:
        for _ in range(20):
            with ranks.Group(daemon.socket, 3, _greet_partly, sends_hello) as group:
                group.hear()
                for member in group:
                    member.kill()
        assert neighbour.stop()[0] > 0
    counters.await_holdings(daemon.pid, before)
    assert daemon.ctl('status')[0]['jobs'] == []


def _gather_and_keep(rank):
    """Takes part in a gather; the last rank never says that it has copied the rows."""
    if rank.number < rank.size - 1:
        session = rank.open()
        rows, _ = session.gather('rows', native.Buffer.foreign(5000).fill(rank.number))
        rank.tell(len(rows))
        code, text = native.failure_of(session.allreduce, 'x', session.alloc(10))
        return code, text
    client = hostile.Client(rank.socket).join(job=rank.job.encode(), rank=rank.number,
                                              size=rank.size).await_ready()
    number, _ = client.segment(1 << 15)
    client.put(hostile.submission(op=native.ALLGATHER, name=b'rows', shape=(5000,),
                                  memory=(number, 0, 0, 0)))
    waiting.until(client.completions, 10, 'the rows')
    rank.tell()
    rank.hear()


def test_a_rank_killed_in_a_gather_before_its_release(daemon):
    before = daemon.settled_holdings()
    for _ in range(10):
        with ranks.Group(daemon.socket, 3, _gather_and_keep) as group:
            assert group.hear() == [60000, 60000, None]
            group[2].kill()
            for number in (0, 1):
                code, text = group[number].result()
                assert code == native.RANK_LOST and 'killed by signal 9' in text, text
    counters.await_holdings(daemon.pid, before)
    assert daemon.ctl('status')[0]['memory']['shared_bytes'] == 0
