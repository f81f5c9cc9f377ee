# SPDX-License-Identifier: Apache-2.0
"""Ranks that wait for each other's operations: logged at once, with who waits for what."""

import threading
import time

import pytest

from kit import native, ranks, reference, waiting

_LOGGED_WITHIN = 0.100


def _wait_for_own(rank, how, names):
    """Waits for its own name. The test ends the process."""
    with rank.open() as session:
        session.barrier()
        rank.tell()
        op = native.make_op(native.ALLREDUCE, names[rank.number], session.alloc(1000))
        rank.hear()
        rank.tell(time.monotonic())
        if how == 'run' or (how == 'mixed' and rank.number % 2):
            session.run(op)
        else:
            session.wait(session.submit(op))


def _provoke(daemon, how, names):
    """Returns (the log line, seconds from the last rank's call to it); the ranks still hang."""
    group = ranks.Group(daemon.socket, len(names), _wait_for_own, how, names)
    group.hear()
    group.tell()
    last = max(group.hear())
    line = waiting.until(lambda: daemon.log('is deadlocked'), 5,
                         lambda: f'a deadlock in {daemon.log()}')[0]
    return group, line, time.monotonic() - last


@pytest.mark.parametrize('how', ['run', 'submit', 'mixed'])
@pytest.mark.parametrize('names', [['a', 'b'], ['a', 'b', 'c', 'd'], ['a', 'a', 'b', 'b']],
                         ids=['2 ranks', '4 ranks', '2 and 2'])
def test_a_deadlock_is_logged_at_once_and_shown(daemon, measured, how, names):
    group, line, took = _provoke(daemon, how, names)
    with group:
        waiters = {name: [i for i, n in enumerate(names) if n == name] for name in names}
        for name, who in waiters.items():
            wanted = f'rank {who[0]} waits' if len(who) == 1 else f'ranks {who} wait'
            assert f"{wanted} for allreduce '{name}'" in line, line
        assert reference.is_within(took, _LOGGED_WITHIN, 3 * len(names)), \
            f'logged after {took * 1000:.0f} ms'
        measured(f'logged after {took * 1000:.1f} ms')
        pending, _ = daemon.ctl('pending')
        assert [job['deadlocked'] for job in pending['jobs']] == [True]
        shown = {op['name']: op['present'] for op in pending['operations']}
        assert shown == waiters
        health, code = daemon.ctl('health')
        assert health['deadlocked_jobs'] == ['job'] and not health['healthy'] and code == 1
        assert len(daemon.log('is deadlocked')) == 1


def _resolve(rank):
    """Another thread would have come: the submitted operation completes the wait."""
    with rank.open() as session:
        session.barrier()
        mine, other = ('a', 'b') if rank.number == 0 else ('b', 'a')
        buffers = {name: session.alloc(100).fill(rank.number) for name in 'ab'}
        handle = session.submit(native.make_op(native.ALLREDUCE, mine, buffers[mine]))
        rank.tell()
        rank.hear()
        code, _ = native.failure_of(session.wait, handle, timeout_ms=300)
        session.run(native.make_op(native.ALLREDUCE, other, buffers[other]))
        if code != native.OK:
            session.wait(handle)
        assert buffers['a'].holds(1) and buffers['b'].holds(1)
        session.allreduce('after', buffers['a'])
        rank.tell()
        rank.hear()
        return code


def test_a_deadlock_that_a_deadline_resolves_is_over(daemon):
    with ranks.Group(daemon.socket, 2, _resolve) as group:
        group.hear()
        group.tell()
        daemon.await_log('is deadlocked', 5)
        group.hear()
        pending, _ = daemon.ctl('pending')
        assert pending['operations'] == []
        health, code = daemon.ctl('health')
        assert health['healthy'] and code == 0
        group.tell()
        # The second may get its sum from the first before its own deadline.
        assert native.DEADLINE_EXCEEDED in group.results()


def _come_late(rank):
    """One thread waits; another, which the daemon has not heard of, brings what the others lack."""
    with rank.open() as session:
        session.barrier()
        mine, other = ('a', 'b') if rank.number == 0 else ('b', 'a')
        buffers = {name: session.alloc(100).fill(rank.number) for name in 'ab'}

        def bring():
            rank.hear()
            session.wait(session.submit(native.make_op(native.ALLREDUCE, other, buffers[other])))

        thread = threading.Thread(target=bring)
        thread.start()
        rank.tell()
        session.run(native.make_op(native.ALLREDUCE, mine, buffers[mine]))
        thread.join()
        return buffers['a'].holds(1) and buffers['b'].holds(1)


def test_a_thread_that_comes_late_makes_it_no_deadlock(daemon):
    """Once the line said that the job was deadlocked, and it went on."""
    with ranks.Group(daemon.socket, 2, _come_late) as group:
        group.hear()
        line = daemon.await_log('may be deadlocked', 5)
        assert 'ranks [0, 1] have other threads' in line, line
        group.tell()
        assert group.results() == [True, True]
    assert daemon.log('is deadlocked') == []


def _uneven(rank):
    """Ranks that are slow in turn: no deadlock at any time."""
    with rank.open() as session:
        buffer = session.alloc(1000)
        for number in range(40):
            if number % rank.size == rank.number:
                time.sleep(0.01)  # Slow on purpose: the others sleep in the operation meanwhile.
            buffer.fill(1)
            session.allreduce(f'slow {number}', buffer)
            handle = session.submit(native.make_op(native.ALLREDUCE, 'async', buffer))
            session.wait(handle)
            assert buffer.holds(rank.size * rank.size)
    return True


def test_slow_ranks_are_no_deadlock(daemon):
    with ranks.Burners(2):
        assert ranks.run(daemon.socket, 4, _uneven, seconds=50) == [True] * 4
    assert daemon.log('deadlock') == []
