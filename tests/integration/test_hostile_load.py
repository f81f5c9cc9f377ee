# SPDX-License-Identifier: Apache-2.0
"""Clients that do allowed things without end: what they hold is bounded, and the latency of other
jobs stays within twice what it is beside as many busy processes that leave the daemon alone."""

import contextlib

import pytest

from kit import counters, hostile, programs, ranks, victim, waiting
from kit.hostile import Client, submission

_SLACK = 0.002
_KEPT_BYTES = 48 << 20


def _forever(once):
    while True:
        once()


def _spam_doorbell(rank):
    client = Client(rank.socket).join(job=b'spam').await_ready()
    rank.tell()
    _forever(client.ring)


def _never_read_completions(rank):
    """Barriers of its own job of one, as fast as the ring takes them."""
    rank.tell()
    while True:
        with contextlib.suppress(hostile.Refused, OSError), Client(rank.socket) as client:
            client.join(job=b'deaf').await_ready()
            request = 0
            while client.socket is not None:
                space = client.space()
                slots = [submission(op=3, name=b'%d' % (request + i), request=request + i + 1)[0]
                         for i in range(min(space, 500))]
                request += len(slots)
                client.put(slots)
                if space == 0:
                    client.socket.setblocking(False)
                    with contextlib.suppress(BlockingIOError):
                        client.receive(0)


def _invalid_submissions(rank):
    client = Client(rank.socket).join(job=b'invalid').await_ready()
    slots = submission(op=1) * 500
    rank.tell()
    while True:
        if client.space() >= 500:
            client.put(slots)
        client.completions()


def _wait_notes(rank):
    """A full table and notes about it."""
    client = Client(rank.socket).join(job=b'notes', rank=rank.number, size=2).await_ready()
    if rank.number == 1:
        rank.tell()
        rank.hear()
    for begin in range(0, 16000, 500):
        waiting.until(lambda: client.space() >= 500, 20, 'space')
        client.put([submission(op=3, name=b'%d' % i, request=i + 1)[0]
                    for i in range(begin, begin + 500)])
    rank.tell()
    notes = [submission(kind=hostile.WAIT_REQUEST, request=16001)[0]] * 500
    while True:
        if client.space() >= 500:
            client.put(notes)


def _direct_notes(rank):
    client = Client(rank.socket).join(job=b'direct', rank=rank.number, size=2).await_ready()
    rank.tell()
    number = 0
    while True:
        if client.space() >= 500:
            client.put([submission(kind=hostile.WAIT_DIRECT, name=b'%d' % (number + i),
                                   request=number + i + 1, direct=number + i)[0]
                        for i in range(500)])
            number += 500


def _connect_and_leave(rank):
    rank.tell()
    while True:
        with contextlib.suppress(OSError), Client(rank.socket) as client:
            client.send(hostile.hello(job=b'visitor'))


def _small_sums(rank):
    """Honest but greedy: 16 KiB sums of a job of one through the ring, without a pause."""
    client = Client(rank.socket).join(job=b'greedy').await_ready()
    number, _ = client.segment(1 << 20)
    rank.tell()
    request = 0
    while True:
        for _ in range(min(client.space(), 100)):
            request += 1
            client.put(submission(shape=(4096,), name=b'%d' % (request % 1000), request=request,
                                  memory=(number, number, 0, 0)))
        client.completions()


def _fetches(rank):
    """Copies of 4 MiB that nobody waits for, again and again."""
    rank.tell()
    while True:
        with contextlib.suppress(hostile.Refused, OSError, waiting.TooLate), \
                Client(rank.socket) as client:
            client.join(job=b'fetch', isolated=1).await_ready()
            number, _ = client.segment(8 << 20)
            client.put(submission(op=1, shape=(1 << 20,), memory=(number, 0, 0, 0), request=1))
            waiting.until(client.completions, 5, 'the gather')
            request = 1
            while True:
                for _ in range(min(client.space(), 100)):
                    request += 1
                    client.put(submission(kind=hostile.FETCH, fetch=1, request=request,
                                          memory=(0, number, 0, 4 << 20)))
                client.socket.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.receive(0)


def _unread_socket(rank):
    """One rank makes segments, of which the other is told and never reads."""
    rank.tell()
    number = 0
    while True:
        number += 1
        with contextlib.suppress(hostile.Refused, OSError):
            with Client(rank.socket) as maker, Client(rank.socket) as deaf:
                deaf.join(job=b'unread %d' % number, rank=1, size=2)
                maker.join(job=b'unread %d' % number, rank=0, size=2).await_ready()
                for _ in range(1024):
                    maker.segment(4096)


def _ask_status(rank):
    """A full table, and ruedactl again and again."""
    client = Client(rank.socket).join(job=b'asked', rank=rank.number, size=2).await_ready()
    if rank.number == 1:
        rank.tell()
        while True:
            programs.run_ctl('pending', '--json', '--socket', rank.socket)
    for begin in range(0, 16000, 500):
        waiting.until(lambda: client.space() >= 500, 20, 'space')
        client.put([submission(op=3, name=b'%d' % i, request=i + 1)[0]
                    for i in range(begin, begin + 500)])
    rank.tell()
    rank.hear()


_ATTACKS = {attack.__name__.strip('_'): attack for attack in (
    _spam_doorbell, _never_read_completions, _invalid_submissions, _wait_notes, _direct_notes,
    _connect_and_leave, _small_sums, _fetches, _unread_socket, _ask_status)}
# Threads that an attack keeps busy, where it is not the attacker and the engine only.
_BUSY = {'fetches': 3, 'small_sums': 3}
_PAIRS = ('wait_notes', 'direct_notes', 'ask_status')


@contextlib.contextmanager
def _attacking(daemon, name):
    count = 2 if name in _PAIRS else 1
    attackers = [ranks.start(_ATTACKS[name], number=number, socket=daemon.socket)
                 for number in range(count)]
    try:
        for attacker in attackers:
            attacker.hear()
        yield
        for attacker in attackers:
            assert counters.state(attacker.pid) != 'Z', attacker.result()
    finally:
        for attacker in attackers:
            attacker.close()


@pytest.mark.seconds(60)
@pytest.mark.parametrize('name', list(_ATTACKS))
def test_floods_are_bounded_and_others_go_on(daemon, measured, name):
    before = daemon.settled_holdings()
    with victim.Victim(daemon.socket) as job:
        job.latencies(0.2)
        resident = counters.resident_bytes(daemon.pid)
        for _ in range(2):  # A burst of other work on the machine does not come twice.
            quiet, loud = victim.compare(job, lambda: ranks.Burners(_BUSY.get(name, 2)),
                                         lambda: _attacking(daemon, name))
            if loud <= 2 * quiet + _SLACK:
                break
        grown = counters.resident_bytes(daemon.pid) - resident
    measured(f'p99 of 4 KiB beside busy processes {quiet * 1000:.2f} ms, beside the flood '
             f'{loud * 1000:.2f} ms; the daemon grew by {grown >> 20} MiB')
    assert loud <= 2 * quiet + _SLACK
    assert grown < _KEPT_BYTES
    if name == 'ask_status':  # gRPC keeps the threads of its busiest moment, up to a limit.
        before = before._replace(threads=before.threads + 4)
    counters.await_holdings(daemon.pid, before)
