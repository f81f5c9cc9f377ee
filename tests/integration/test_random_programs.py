# SPDX-License-Identifier: Apache-2.0
"""Random programs that are legal on every rank: all results are right, and nothing hangs.

Ranks agree on what each round holds, by a seed, and differ in order, in pace, and in whether they
run an operation or submit it.
"""

import random
import threading
import time

import pytest

from kit import native, ranks

_DTYPES = ('uint8', 'int32', 'int64', 'uint32', 'uint64', 'float32', 'float64')
_COUNTS = (0, 1, 7, 14, 15, 100, 1000, 5000, 20000, 70000, 300000)


class Planned:
    """One operation of a round, the same on all ranks but for memory and the way it is called."""

    def __init__(self, dice, name, size):
        self.name = name
        self.kind = dice.choices((native.ALLREDUCE, native.BROADCAST, native.ALLGATHER,
                                  native.BARRIER), (10, 3, 3, 1))[0]
        self.dtype = dice.choice(_DTYPES)
        self.count = dice.choice(_COUNTS)
        self.op = dice.choice((native.SUM, native.SUM, native.MAX, native.MIN))
        self.root = dice.randrange(size)
        self.base = dice.randrange(1, 20)
        self.is_ragged = dice.random() < 0.5

    def rows(self, rank):
        """Elements that a rank gives."""
        ragged = self.kind == native.ALLGATHER and self.is_ragged
        return self.count // (rank + 1) if ragged else self.count

    def prepare(self, session, own_dice):
        """The op over fresh memory of either kind."""
        if self.kind == native.BARRIER:
            return native.make_op(native.BARRIER, self.name), None
        count = self.rows(session.rank)
        if own_dice.random() < 0.5:
            buffer = session.alloc(count, self.dtype)
        else:
            buffer = native.Buffer.foreign(count, self.dtype)
        buffer.fill(self.base + session.rank)
        return native.make_op(self.kind, self.name, buffer, op=self.op, root=self.root), buffer

    def check(self, session, buffer, handle):
        """Asserts the result and gives the memory back."""
        if self.kind == native.BARRIER:
            return
        if self.kind == native.ALLGATHER:
            self._check_rows(session, handle)
        else:
            assert buffer.holds(self._wanted(session.size)), f'{self.name}: {vars(self)}'
        if session.library.rueda_owns(session.pointer, buffer.address, 1):
            session.free(buffer)

    def _wanted(self, size):
        if self.kind == native.BROADCAST:
            return self.base + self.root
        values = [self.base + rank for rank in range(size)]
        return {native.SUM: sum, native.MAX: max, native.MIN: min}[self.op](values)

    def _check_rows(self, session, handle):
        result = session.gathered(handle)
        given = [self.rows(rank) for rank in range(session.size)]
        assert result.first_dims[:result.ranks] == given, self.name
        at = result.data
        for rank, count in enumerate(given):
            part = native.Buffer(at, count, self.dtype)
            assert part.holds(self.base + rank), f'{self.name}: rows of {rank}'
            at = (at or 0) + part.bytes
        session.release(handle)


def _round(session, plans, own_dice, seed_of_groups):
    """One round: every planned operation once, in this rank's own order and way."""
    prepared = {plan: plan.prepare(session, own_dice) for plan in plans}
    grouped = seed_of_groups.random() < 0.3
    handles = {}
    if grouped:
        # A group is a wish of all ranks, in any order.
        order = own_dice.sample(plans, len(plans))
        made = session.submit(*[prepared[plan][0] for plan in order])
        handles = dict(zip(order, made if isinstance(made, list) else [made]))
    else:
        for plan in own_dice.sample(plans, len(plans)):
            handles[plan] = session.submit(prepared[plan][0])
            if own_dice.random() < 0.1:
                time.sleep(own_dice.random() * 0.003)  # Ranks are of different speed.
    for plan in own_dice.sample(plans, len(plans)):
        if own_dice.random() < 0.3:
            while not session.poll(handles[plan]):
                pass
        session.wait(handles[plan])
        plan.check(session, prepared[plan][1], handles[plan])


def _blocking(session, plan, own_dice):
    """One operation that this rank runs or submits, as it likes."""
    op, buffer = plan.prepare(session, own_dice)
    handle = None
    if plan.kind == native.ALLGATHER or own_dice.random() < 0.15:
        handle = session.submit(op)
        session.wait(handle)
    else:
        session.run(op)
    plan.check(session, buffer, handle)


def _program(session, seed, thread, seconds, finished):
    dice = random.Random(seed * 100 + thread)
    own_dice = random.Random((seed, session.rank, thread).__hash__())
    going_on = session.alloc(1, 'int32')
    end = time.monotonic() + seconds
    rounds = 0
    while True:
        plans = [Planned(dice, f'{thread}/{rounds}/{i}', session.size)
                 for i in range(dice.randrange(1, 9))]
        if dice.random() < 0.6:
            for plan in plans:
                _blocking(session, plan, own_dice)
        else:
            _round(session, plans, own_dice, dice)
        going_on.fill(1 if time.monotonic() < end else 0)
        session.broadcast(f'{thread}/going on', going_on)
        rounds += 1
        if going_on.holds(0):
            finished[thread] = rounds
            return


def _run_programs(rank, seed, threads, seconds):
    with rank.open() as session:
        finished, failures = {}, []

        def guarded(thread):
            try:
                _program(session, seed, thread, seconds, finished)
            except BaseException as failure:  # Told to the test below.
                failures.append(repr(failure))
                raise

        workers = [threading.Thread(target=guarded, args=(thread,)) for thread in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert not failures, failures
        session.barrier('all threads of all ranks have finished')
        return finished


@pytest.mark.seconds(90)
@pytest.mark.parametrize('size, threads, isolated', [
    (2, 1, False), (4, 1, False), (3, 3, False), (3, 2, True)])
def test_random_programs_give_right_results(daemon, dice, measured, size, threads, isolated):
    seed = dice.randrange(1 << 32)
    results = ranks.run(daemon.socket, size, _run_programs, seed, threads, 5.0, seconds=60,
                        isolated=isolated)
    assert all(result == results[0] for result in results), results
    measured(f'{sum(results[0].values())} rounds')
    assert daemon.log('lost') == [], daemon.log()
    if threads == 1:  # Of several threads one may be awake, which the daemon cannot see.
        assert daemon.log('deadlock') == [], daemon.log()
    status, _ = daemon.ctl('pending')
    assert status['operations'] == []
