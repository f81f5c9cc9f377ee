# SPDX-License-Identifier: Apache-2.0
"""A rank that is absent or stopped is named at once, and the operation completes when it comes."""

import signal
import time

import pytest

from kit import native, ranks, waiting

_NAMED_WITHIN = 1.0
_LOGGED_WITHIN = 2.0
_RANKS = 3
_LATE = 2


def _one_sum(rank, path, late):
    """Takes part in one sum, the late rank when it is told. Returns whether the sum is right."""
    with rank.open(isolated=path == 'isolated') as session:
        buffer = session.alloc(50000).fill(rank.number + 1)
        rank.tell()
        if rank.number == late:
            rank.hear()
        if path == 'async':
            session.wait(session.submit(native.make_op(native.ALLREDUCE, 'late sum', buffer)))
        else:
            session.allreduce('late sum', buffer)
        return buffer.holds(sum(range(1, rank.size + 1)))


def _one_sum_in_a_set(rank, late):
    """As _one_sum, in a process set without rank 0."""
    with rank.open() as session:
        number = session.add_process_set(range(1, rank.size))
        buffer = session.alloc(50000).fill(rank.number)
        rank.tell()
        if rank.number == late:
            rank.hear()
        if rank.number > 0:
            session.allreduce('late sum', buffer, process_set=number)
        rank.tell()
        rank.hear()  # Who leaves ends the job, hence the sum of others.
        return buffer.holds(sum(range(rank.size)) if rank.number > 0 else 0)


def _await_named(daemon, began, pid, is_stopped):
    """Asks ruedactl until it names the late rank; asserts the bound. Returns the operation."""
    def ask():
        pending, _ = daemon.ctl('pending')
        named = [waited for waited in pending['waited_for']
                 if waited['pid'] == pid and waited['stopped'] == is_stopped]
        alone = named and len(pending['waited_for']) == 1  # The others have all come.
        return (pending['operations'], named[0]) if alone else None

    operations, named = waiting.until(
        ask, 5, lambda: f'ruedactl names pid {pid}: {daemon.ctl("pending")} {daemon.log()}')
    took = time.monotonic() - began
    assert took <= _NAMED_WITHIN, f'ruedactl pending named it after {took:.2f} s'
    assert named['rank'] == _LATE, named
    assert named['host'] == 'testhost'
    return operations, took


def _await_one_line(daemon, began, pid, name):
    lines = waiting.until(lambda: daemon.log('waits since'), 5, 'a line in the log')
    took = time.monotonic() - began
    assert took <= _LOGGED_WITHIN, f'the line came after {took:.2f} s'
    assert len(lines) == 1, lines
    assert f"'{name}'" in lines[0] and f'rank {_LATE} (pid {pid} on host testhost)' in lines[0]
    return lines[0], took


@pytest.mark.parametrize('path', ['direct', 'async', 'isolated'])
@pytest.mark.parametrize('how', ['absent', 'stopped'])
def test_a_rank_that_does_not_come_is_named_and_logged_once(daemon, measured, path, how):
    with ranks.Group(daemon.socket, _RANKS, _one_sum, path, _LATE) as group:
        group.hear()
        late = group[_LATE]
        began = time.monotonic()
        if how == 'stopped':
            late.signal(signal.SIGSTOP)
        operations, named = _await_named(daemon, began, late.pid, how == 'stopped')
        assert [(op['name'], op['missing']) for op in operations] == [('late sum', [_LATE])]
        assert operations[0]['present'] == [0, 1]
        line, logged = _await_one_line(daemon, began, late.pid, 'late sum')
        assert ('is stopped' in line) == (how == 'stopped'), line
        measured(f'named by ruedactl after {named:.2f} s, in the log after {logged:.2f} s')
        late.signal(signal.SIGCONT)
        late.tell()
        assert group.results() == [True] * _RANKS
        pending, _ = daemon.ctl('pending')
        assert pending['operations'] == []


@pytest.mark.parametrize('how', ['absent', 'stopped'])
def test_a_rank_that_does_not_come_to_a_process_set_is_named_with_it(daemon, how):
    with ranks.Group(daemon.socket, _RANKS, _one_sum_in_a_set, _LATE) as group:
        group.hear()
        late = group[_LATE]
        began = time.monotonic()
        if how == 'stopped':
            late.signal(signal.SIGSTOP)
        operations, _ = _await_named(daemon, began, late.pid, how == 'stopped')
        assert [(op['name'], op['missing'], op['present']) for op in operations] == [
            ('late sum', [_LATE], [1])]
        line, _ = _await_one_line(daemon, began, late.pid, 'late sum')
        assert "'late sum' of process set 1 waits" in line, line
        late.signal(signal.SIGCONT)
        late.tell()
        group.hear()
        group.tell()
        assert group.results() == [True] * _RANKS


def _sums_until_told(rank, path):
    """Large sums until rank 0 is told to stop, each checked; returns how many."""
    count = 4 << 20
    with rank.open() as session:
        buffer = native.Buffer.foreign(count) if path == 'foreign' else session.alloc(count)
        going_on = session.alloc(1)
        rounds = 0
        while True:
            buffer.fill(rank.number + rounds)
            if path == 'async':
                session.wait(session.submit(native.make_op(native.ALLREDUCE, 'big', buffer)))
            else:
                session.allreduce('big', buffer)
            assert buffer.holds(sum(range(rank.size)) + rank.size * rounds), f'round {rounds}'
            if rounds == 0:
                rank.tell()
            going_on.fill(0 if rank.number == 0 and rank.has_mail() else 1)
            session.broadcast('going on', going_on)
            rounds += 1
            if going_on.holds(0):
                return rounds


@pytest.mark.parametrize('path', ['direct', 'foreign', 'async'])
def test_a_rank_stopped_in_the_middle_is_named_and_goes_on(daemon, dice, measured, path):
    with ranks.Group(daemon.socket, _RANKS, _sums_until_told, path) as group:
        group.hear()
        slowest = 0.0
        for _ in range(4):
            time.sleep(dice.random() * 0.03)  # A random moment of a sum, not a synchronisation.
            began = group[_LATE].signal(signal.SIGSTOP)
            _, took = _await_named(daemon, began, group[_LATE].pid, True)
            slowest = max(slowest, took)
            group[_LATE].signal(signal.SIGCONT)
        began = group[_LATE].signal(signal.SIGSTOP)
        lines = waiting.until(lambda: daemon.log(f'pid {group[_LATE].pid}'), 5, 'a line in the log')
        assert time.monotonic() - began <= _LOGGED_WITHIN
        # One operation, or two where one peer already waits in the next.
        assert len(lines) == len({line.split("'")[3] for line in lines}) <= 2, lines
        assert all('is stopped' in line for line in lines), lines
        assert not daemon.log('deadlock')
        group[_LATE].signal(signal.SIGCONT)
        group[0].tell('stop')
        rounds = group.results()
        assert len(set(rounds)) == 1
        measured(f'{rounds[0]} sums right over 5 stops, named after {slowest:.2f} s at the latest')


def test_the_stall_limit_fails_the_job_with_names(daemons):
    daemon = daemons('--stall-shutdown-seconds', '1')
    with ranks.Group(daemon.socket, 2, _stalls) as group:
        group.hear()
        began = time.monotonic()
        code, text = group[0].result()
        took = time.monotonic() - began
        assert code == native.STALLED and 'late sum' in text and 'rank 1 (pid' in text, text
        assert 0.9 <= took <= 2.0, took


def _stalls(rank):
    with rank.open() as session:
        rank.tell()
        if rank.number == 1:
            rank.hear()
        return native.failure_of(session.allreduce, 'late sum', session.alloc(10))
