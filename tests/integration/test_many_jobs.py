# SPDX-License-Identifier: Apache-2.0
"""Many jobs at once, many ranks, and names of every kind."""

import contextlib
import time

import pytest

from kit import counters, native, ranks


def _rounds(rank, offset, rounds):
    """Sums, broadcasts and gathers, by every path, each checked."""
    with rank.open() as session:
        rank.tell()
        rank.hear()
        size = rank.size
        direct, shared = session.alloc(3000), session.alloc(20000)
        foreign = native.Buffer.foreign(30000)
        for number in range(rounds):
            value = offset + number
            for buffer in (direct, shared, foreign):
                buffer.fill(value + rank.number)
            session.allreduce('direct', direct)
            handle = session.submit(native.make_op(native.ALLREDUCE, 'async', shared))
            session.allreduce('foreign', foreign)
            session.wait(handle)
            total = size * value + sum(range(size))
            wrong = [buffer.bytes for buffer in (direct, shared, foreign)
                     if not buffer.holds(total)]
            assert not wrong, f'round {number}: wrong sums of {wrong} bytes'
            root = number % size
            session.broadcast('root', shared.fill(value + rank.number), root=root)
            assert shared.holds(value + root), f'round {number}: wrong broadcast'
            _, rows = session.gather('rows', native.Buffer.foreign(rank.number + 1))
            assert rows == list(range(1, size + 1))
    return True


@pytest.mark.seconds(100)
def test_sixteen_jobs_at_once(daemon, measured):
    before = daemon.settled_holdings()
    with contextlib.ExitStack() as stack:
        groups = [stack.enter_context(ranks.Group(daemon.socket, 2, _rounds, 1000 * number, 30,
                                                  job=f'job {number}')) for number in range(16)]
        for group in groups:
            group.hear()
        assert len(daemon.ctl('jobs')[0]['jobs']) == 16
        began = time.monotonic()
        for group in groups:
            group.tell()
        for group in groups:
            assert group.results(80) == [True, True]
        measured(f'16 jobs of 2 ranks, 30 rounds each, in {time.monotonic() - began:.1f} s')
    counters.await_holdings(daemon.pid, before)
    assert daemon.log('lost') == [] and daemon.log('deadlock') == []


@pytest.mark.parametrize('isolated', [False, True])
def test_eight_ranks(daemon, measured, isolated):
    began = time.monotonic()
    with ranks.Group(daemon.socket, 8, _rounds, 0, 15, isolated=isolated) as group:
        group.hear()
        group.tell()
        assert group.results(50) == [True] * 8
    measured(f'8 ranks, 15 rounds, in {time.monotonic() - began:.1f} s')
    assert daemon.log('lost') == [] and daemon.log('deadlock') == []


def _gather_and_go(rank, rows):
    """A gather is the last thing that the ranks do; the first to have its rows leaves."""
    with rank.open() as session:
        data, given = session.gather('last', native.Buffer.foreign(rows).fill(rank.number))
        assert given == [rows] * rank.size
        return len(data)


@pytest.mark.parametrize('isolated', [False, True])
def test_a_rank_may_leave_while_others_copy_the_rows(daemon, isolated):
    """Once, an isolated rank's copy failed when another had left: 'the job has been shut down'."""
    for number in range(25):
        rows = (100, 300000)[number % 2]
        results = ranks.run(daemon.socket, 4, _gather_and_go, rows, isolated=isolated,
                            job=f'{number}')
        assert results == [4 * 4 * rows] * 4


_NAMES = ['with spaces ', 'layer/weight:0', 'größe → 模型 🚗', 'n' * 1024, '', '\x01\x7f\t',
          "quote ' \" \\", '%s %n {} $HOME', 'é' * 512]


def _all_names(rank, names):
    with rank.open() as session:
        for name in names:
            for kind in ('run', 'submit', 'gather'):
                buffer = session.alloc(100).fill(rank.number)
                if kind == 'run':
                    session.allreduce(name, buffer)
                elif kind == 'submit':
                    session.wait(session.submit(native.make_op(native.ALLREDUCE, name, buffer)))
                else:
                    session.gather(name, buffer)
                    continue
                assert buffer.holds(sum(range(rank.size))), (name, kind)
        rank.tell()
        rank.hear()
        waits = session.alloc(10)
        for name in names:
            session.submit(native.make_op(native.ALLREDUCE, name, waits)
                           if rank.number == 0 else native.make_op(native.BARRIER, 'b' + name[:99]))
        rank.tell()
        rank.hear()


def test_names_of_every_kind(daemon):
    with ranks.Group(daemon.socket, 2, _all_names, _NAMES, job='job / with ünïcode') as group:
        group.hear()
        group.tell()
        group.hear()
        pending, _ = daemon.ctl('pending')
        shown = {op['name'] for op in pending['operations'] if op['present'] == [0]}
        assert shown == set(_NAMES)
        assert {op['job_id'] for op in pending['operations']} == {'job / with ünïcode'}
        # One line each, whatever the names hold.
        daemon.await_log('waits since', 5)
        assert all(line[:2] == '20' for line in daemon.log()), daemon.log()
        group.tell()
        group.results()


@pytest.mark.parametrize('job', ['j' * 127, 'spaces and / and ü', '模型'])
def test_job_names(daemon, job):
    with ranks.Group(daemon.socket, 2, _rounds, 0, 2, job=job) as group:
        group.hear()
        assert daemon.ctl('jobs', '--job', job)[0]['jobs'][0]['id'] == job
        group.tell()
        assert group.results() == [True, True]
