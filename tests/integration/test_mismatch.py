# SPDX-License-Identifier: Apache-2.0
"""Ranks that disagree get one error on all ranks, with who and both values; the job goes on."""

import time

import pytest

from kit import native, ranks

_WITHIN = 1.0
_RANKS = 3

# What the odd rank does differently, and what the error must name.
_CASES = {
    'dtype': (dict(dtype='float64'), ('data types', 'float32', 'float64')),
    'shape': (dict(shape=(50, 4)), ('tensor shapes', '[200]', '[50, 4]')),
    'count': (dict(count=199), ('tensor shapes', '[200]', '[199]')),
    'kind': (dict(kind=native.BROADCAST), ('operations', 'allreduce', 'broadcast')),
    'barrier': (dict(kind=native.BARRIER), ('allreduce', 'barrier')),
    'op': (dict(op=native.MAX), ('reduction operation', 'sum', 'max')),
    'average': (dict(op=native.AVERAGE), ('reduction operation', 'sum', 'average')),
    'prescale': (dict(scale=(0.5, 1.0)), ('prescale', 'prescale 1', 'prescale 0.5')),
    'postscale': (dict(scale=(1.0, 0.25)), ('postscale', 'postscale 1', 'postscale 0.25')),
}
_BROADCAST_CASES = {
    'root': (dict(root=1), ('root', 'root 0', 'root 1')),
    'dtype': (dict(dtype='int32'), ('data types', 'float32', 'int32')),
    'shape': (dict(shape=(200, 1)), ('tensor shapes', '[200]', '[200, 1]')),
}
_GATHER_CASES = {
    'dtype': (dict(dtype='int64', shape=(10, 20)), ('data types', 'float32', 'int64')),
    'row shape': (dict(shape=(20, 10)), ('tensor shapes', '[*, 20]', '[*, 10]')),
    'dimensions': (dict(shape=(10, 20, 1)), ('tensor shapes', '[*, 20]', '[*, 20, 1]')),
}


def _op(session, name, memory, kind=native.ALLREDUCE, dtype='float32', count=200, shape=None,
        **options):
    if kind == native.BARRIER:
        return native.make_op(kind, name)
    buffer = session.alloc(count, dtype) if memory == 'arena' else \
        native.Buffer.foreign(count, dtype)
    return native.make_op(kind, name, buffer, shape=shape, **options)


def _disagree(rank, how, memory, usual, odd_rank, odd):
    """Disagrees on one operation, then agrees on others. Returns (seconds, code, text)."""
    with rank.open(isolated=memory == 'isolated') as session:
        session.barrier('together')
        op = _op(session, 'odd one', memory, **(usual if rank.number != odd_rank
                                                else {**usual, **odd}))
        began = time.monotonic()
        if how == 'run':
            code, text = native.failure_of(session.run, op)
        else:
            handle = session.submit(op)
            code, text = native.failure_of(session.wait, handle)
        took = time.monotonic() - began
        for name in ('odd one', 'next'):
            buffer = session.alloc(200).fill(rank.number)
            session.allreduce(name, buffer)
            assert buffer.holds(sum(range(rank.size))), name
        return took, code, text


def _check(daemon, how, memory, usual, odd, named, odd_rank):
    results = ranks.run(daemon.socket, _RANKS, _disagree, how, memory, usual, odd_rank, odd)
    for took, code, text in results:
        assert code == native.MISMATCH, (code, text)
        assert all(part in text for part in named), text
        assert "'odd one'" in text and f'rank {odd_rank}' in text and 'rank 0' in text, text
        assert took <= _WITHIN, took
    assert len({text for _, _, text in results}) == 1
    assert not daemon.log('lost'), daemon.log()


@pytest.mark.parametrize('memory', ['arena', 'foreign', 'isolated'])
@pytest.mark.parametrize('how', ['run', 'submit'])
def test_allreduces_that_differ(daemon, how, memory):
    for case, (odd, named) in _CASES.items():
        _check(daemon, how, memory, {}, odd, named, odd_rank=1 + len(case) % 2)


@pytest.mark.parametrize('how', ['run', 'submit'])
def test_broadcasts_that_differ(daemon, how):
    for odd, named in _BROADCAST_CASES.values():
        _check(daemon, how, 'arena', dict(kind=native.BROADCAST), odd, named, odd_rank=2)


def test_allgathers_that_differ(daemon):
    usual = dict(kind=native.ALLGATHER, shape=(10, 20))
    for odd, named in _GATHER_CASES.values():
        _check(daemon, 'submit', 'foreign', usual, odd, named, odd_rank=1)


def _mixed_calls(rank):
    """Equal operations, run by some ranks and submitted by others: no mismatch at all."""
    with rank.open() as session:
        for number in range(20):
            buffer = session.alloc(3000).fill(rank.number + number)
            op = native.make_op(native.ALLREDUCE, f'mixed {number % 3}', buffer)
            if (rank.number + number) % 2:
                session.run(op)
            else:
                session.wait(session.submit(op))
            assert buffer.holds(sum(range(rank.size)) + rank.size * number), number
            session.free(buffer)
    return True


def test_run_and_submit_meet(daemon):
    assert ranks.run(daemon.socket, _RANKS, _mixed_calls) == [True] * _RANKS


def _twice(rank):
    with rank.open() as session:
        buffers = [session.alloc(100).fill(1) for _ in range(2)]
        ops = [native.make_op(native.ALLREDUCE, 'twice', buffer) for buffer in buffers]
        if rank.number == 0:
            first = session.submit(ops[0])
            second = native.failure_of(session.submit, ops[1])
            third = native.failure_of(session.run, ops[1])
            group = native.failure_of(session.submit, ops[1], native.make_op(
                native.ALLREDUCE, 'innocent', session.alloc(8)))
            rank.tell()
        else:
            rank.hear()
            first = session.submit(ops[0])
            second = third = group = None
        session.wait(first)
        assert buffers[0].holds(rank.size)
        session.allreduce('innocent', buffers[0])
        return second, third, group


def test_a_name_in_flight_is_refused_in_this_process_only(daemon):
    with ranks.Group(daemon.socket, 2, _twice) as group:
        group[0].hear()
        group[1].tell()
        refused, nothing = group.results()
    for code, text in refused:
        assert code == native.ALREADY_EXISTS and "'twice'" in text and 'in flight' in text
    assert nothing == (None, None, None)


def _different_groups(rank, parts):
    """Submits a, b, c in groups that differ between ranks."""
    with rank.open() as session:
        buffers = {name: session.alloc(100).fill(rank.number) for name in 'abc'}
        handles = []
        for part in parts[rank.number]:
            ops = [native.make_op(native.ALLREDUCE, name, buffers[name]) for name in part]
            made = session.submit(*ops)
            handles += made if isinstance(made, list) else [made]
        outcomes = [native.failure_of(session.wait, handle, timeout_ms=3000) for handle in handles]
        session.barrier()
        return outcomes


@pytest.mark.parametrize('parts', [
    [['abc'], ['a', 'b', 'c']], [['c', 'b', 'a'], ['abc']], [['ab', 'c'], ['a', 'bc']],
    [['abc'], ['ab', 'c']],
])
def test_groups_that_differ_end(daemon, parts):
    """Whatever the groups, each operation ends: with a right sum or an error, never by hanging."""
    for outcomes in ranks.run(daemon.socket, 2, _different_groups, parts):
        codes = {code for code, _ in outcomes}
        assert codes <= {native.OK, native.MISMATCH}, outcomes


def _one_by_one(rank):
    """Rank 0 has one group, rank 1 waits for each before it submits the next."""
    with rank.open() as session:
        buffers = {name: session.alloc(100).fill(rank.number) for name in 'abc'}
        ops = [native.make_op(native.ALLREDUCE, name, buffers[name]) for name in 'abc']
        began = time.monotonic()
        if rank.number == 0:
            outcomes = [native.failure_of(session.wait, handle, timeout_ms=8000)
                        for handle in session.submit(*ops)]
        else:
            outcomes = [native.failure_of(session.wait, session.submit(op), timeout_ms=8000)
                        for op in ops]
        took = time.monotonic() - began
        session.barrier()
        return outcomes, took, all(buffer.holds(1) for buffer in buffers.values())


def test_a_group_that_another_rank_takes_one_by_one_ends(daemon):
    """Once, rank 0's group waited for its last name, and rank 1 for its first, for ever."""
    for outcomes, took, right in ranks.run(daemon.socket, 2, _one_by_one):
        assert [code for code, _ in outcomes] == [native.OK] * 3, outcomes
        assert right and took < 2.0, took


def _wrong_arguments(rank):
    with rank.open() as session:
        session.barrier()
        buffer = session.alloc(10)
        wrong = {
            'root': native.make_op(native.BROADCAST, 'x', buffer, root=rank.size),
            'negative root': native.make_op(native.BROADCAST, 'x', buffer, root=-1),
            'dimension': native.make_op(native.ALLREDUCE, 'x', buffer, shape=(-1,)),
            'huge': native.make_op(native.ALLREDUCE, 'x', buffer, shape=(1 << 40, 1 << 40)),
            'name': native.make_op(native.ALLREDUCE, 'n' * 1025, buffer),
        }
        codes = {name: native.failure_of(session.submit, op)[0] for name, op in wrong.items()}
        buffer.fill(rank.number)
        session.allreduce('x', buffer)
        assert buffer.holds(sum(range(rank.size)))
        return codes


def test_wrong_arguments_stay_in_this_process(daemon):
    for codes in ranks.run(daemon.socket, 2, _wrong_arguments):
        assert set(codes.values()) == {native.INVALID_ARGUMENT}, codes
