# SPDX-License-Identifier: Apache-2.0
"""The steps of an operation's life at which a test kills or stops a rank.

A step is a function (rank, session, victim) that runs on every rank of a job until the session
fails. It tells the test once when the victim may be killed. Peers that have nothing to wait for
until then hear() from the test that it has happened.
"""

import contextlib
import threading

from kit import native


def _is_victim(rank, victim):
    return rank.number == victim


def _idle(rank, session, victim):
    buffer = session.alloc(8)
    rank.tell()
    rank.hear()
    session.allreduce('after', buffer)


def _after_alloc(rank, session, victim):
    buffer = session.alloc(2 << 20)
    rank.tell()
    if _is_victim(rank, victim):
        rank.hear()
    session.allreduce('wait', buffer)


def _waits_in_direct(rank, session, victim):
    buffer = session.alloc(100000)
    rank.tell()
    if rank.number == (victim + 1) % rank.size:
        rank.hear()
        session.allreduce('other', buffer)
    session.allreduce('never complete', buffer)


def _small_direct(rank, session, victim):
    buffer = session.alloc(8).fill(1)
    _loop(rank, lambda: session.allreduce('small', buffer))


def _big_direct(rank, session, victim):
    buffer = session.alloc(4 << 20).fill(0)
    _loop(rank, lambda: session.allreduce('big', buffer))


def _big_foreign(rank, session, victim):
    buffer = native.Buffer.foreign(2 << 20).fill(0)
    _loop(rank, lambda: session.allreduce('foreign', buffer))


def _broadcast(rank, session, victim):
    buffer = session.alloc(1 << 20).fill(0)
    _loop(rank, lambda: session.broadcast('broadcast', buffer, root=1))


def _barrier(rank, session, victim):
    _loop(rank, session.barrier)


def _after_submit(rank, session, victim):
    a, b = session.alloc(1000).fill(1), session.alloc(1000).fill(1)
    first = session.submit(native.make_op(native.ALLREDUCE, 'a', a))
    session.wait(first)
    if not _is_victim(rank, victim):
        second = session.submit(native.make_op(native.ALLREDUCE, 'b', b))
        rank.tell()
        session.wait(second)
    session.submit(native.make_op(native.ALLREDUCE, 'c', b))
    rank.tell()
    rank.hear()


def _waits_in_async(rank, session, victim):
    name = 'victim' if _is_victim(rank, victim) else 'peers'
    handle = session.submit(native.make_op(native.ALLREDUCE, name, session.alloc(1000)))
    rank.tell()
    session.wait(handle)


def _big_async(rank, session, victim):
    buffers = [session.alloc(1 << 20).fill(0) for _ in range(3)]

    def once():
        handles = [session.submit(native.make_op(native.ALLREDUCE, f'async {i}', buffer))
                   for i, buffer in enumerate(buffers)]
        for handle in handles:
            session.wait(handle)

    _loop(rank, once)


def _groups(rank, session, victim):
    buffers = [session.alloc(5000).fill(0) for _ in range(4)]

    def once():
        ops = [native.make_op(native.ALLREDUCE, f'group {i}', buffer)
               for i, buffer in enumerate(buffers)]
        for handle in session.submit(*ops):
            session.wait(handle)

    _loop(rank, once)


def _gather(rank, session, victim):
    buffer = native.Buffer.foreign(1 << 20)

    def once():
        handle = session.submit(native.make_op(native.ALLGATHER, 'rows', buffer))
        session.wait(handle)
        session.release(handle)

    _loop(rank, once)


def _loop(rank, once):
    once()
    rank.tell()
    while True:
        once()


def _overlapping_sets(rank, session, victim):
    pairs = [(a, b) for b in range(rank.size) for a in range(b)]
    sets = [session.add_process_set(pair) for pair in pairs]
    own = [number for number, pair in zip(sets, pairs) if rank.number in pair]
    buffers = [session.alloc(100000).fill(0) for _ in own]

    def forever(number, buffer):
        with contextlib.suppress(native.Failure):
            while True:
                session.allreduce('of a pair', buffer, process_set=number)

    threads = [threading.Thread(target=forever, args=one) for one in list(zip(own, buffers))[1:]]
    for thread in threads:
        thread.start()
    try:
        _loop(rank, lambda: session.allreduce('of a pair', buffers[0], process_set=own[0]))
    finally:
        for thread in threads:
            thread.join()


# In an isolated job every operation goes through the daemon.
def _isolated_sum(rank, session, victim):
    buffer = native.Buffer.foreign(200000).fill(0)
    _loop(rank, lambda: session.allreduce('isolated', buffer))


def _isolated_gather(rank, session, victim):
    _gather(rank, session, victim)


STEPS = {
    'idle': _idle, 'after alloc': _after_alloc, 'waits in direct': _waits_in_direct,
    'small direct': _small_direct, 'big direct': _big_direct, 'big foreign': _big_foreign,
    'broadcast': _broadcast, 'barrier': _barrier, 'after submit': _after_submit,
    'waits in async': _waits_in_async, 'big async': _big_async, 'groups': _groups,
    'gather': _gather, 'overlapping sets': _overlapping_sets, 'isolated sum': _isolated_sum,
    'isolated gather': _isolated_gather,
}


# Steps in which the ranks sleep until one is killed; in the others they all work without a pause.
WAITING = ('idle', 'after alloc', 'waits in direct', 'after submit', 'waits in async')


def is_isolated(step):
    """Whether the ranks of a step map no memory of each other."""
    return step.startswith('isolated')


def hears_first(step):
    """Whether peers hear() before they can fail."""
    return step in ('idle', 'waits in direct')
