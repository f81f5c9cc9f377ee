# SPDX-License-Identifier: Apache-2.0
"""A private daemon ends with its last client or its launcher, and leaves nothing behind."""

import os
import signal
import time

from kit import counters, native, ranks, waiting

_GONE_WITHIN = 1.0
_PLACES = ('/dev/shm', '/tmp', '/run')


def _stay(rank):
    """Sums once, then stays until told; closes properly if told so."""
    session = rank.open()
    buffer = session.alloc(1 << 20).fill(1)
    session.allreduce('x', buffer)
    rank.tell(buffer.holds(rank.size))
    if rank.hear() == 'close':
        session.close()


def _started(daemon, size=2):
    group = ranks.Group(daemon.socket, size, _stay)
    assert group.hear() == [True] * size
    return group


def _await_end(daemon, began):
    assert daemon.wait(5) == 0
    took = time.monotonic() - began
    assert took <= _GONE_WITHIN, f'ended after {took:.2f} s'
    assert counters.abstract_sockets(daemon.socket[1:]) == []
    return took


def test_it_ends_with_its_last_client(daemons, measured):
    daemon = daemons(private=True)
    with _started(daemon) as group:
        group[0].tell('close')
        group[0].result()
        assert daemon.is_alive()
        began = time.monotonic()
        group[1].tell('close')
        group[1].result()
        measured(f'gone after {_await_end(daemon, began) * 1000:.0f} ms')


def test_it_ends_when_its_last_client_is_killed(daemons):
    daemon = daemons(private=True)
    with _started(daemon) as group:
        group[0].kill()
        began = group[1].kill()
        _await_end(daemon, began)


def test_it_stays_between_clients_while_its_launcher_lives(daemons):
    daemon = daemons(lifeline=True)
    for _ in range(3):
        with _started(daemon) as group:
            group.tell('close')
            group.results()
    assert daemon.is_alive()
    began = time.monotonic()
    daemon.close_lifeline()
    _await_end(daemon, began)


def test_it_outlives_its_launcher_until_the_last_client_has_gone(daemons):
    daemon = daemons(lifeline=True)
    with _started(daemon) as group:
        daemon.close_lifeline()
        group[0].tell('close')
        group[0].result()
        # It has seen the end of the lifeline by now: the answer comes from a later turn.
        assert daemon.ctl('status')[0]['daemon']['pid'] == daemon.pid
        assert daemon.is_alive()
        began = time.monotonic()
        group[1].tell('close')
        group[1].result()
        _await_end(daemon, began)


def test_it_ends_with_a_launcher_that_never_started_a_rank(daemons):
    daemon = daemons(lifeline=True)
    began = time.monotonic()
    daemon.close_lifeline()
    _await_end(daemon, began)


def test_a_rank_that_still_connects_keeps_it(daemons):
    daemon = daemons(lifeline=True)
    with ranks.Group(daemon.socket, 2, _stay, numbers=[0]) as half:
        waiting.until(lambda: daemon.ctl('jobs')[0]['jobs'], 5, 'the job forms')
        daemon.close_lifeline()
        with ranks.Group(daemon.socket, 2, _stay, numbers=[1]) as other:
            assert half[0].hear() and other[0].hear()
            began = time.monotonic()
            half[0].tell('close')
            other[0].tell('close')
            half[0].result()
            other[0].result()
            _await_end(daemon, began)


def _names():
    """Everything with our name in the places where such programs leave things."""
    return {os.path.join(place, name) for place in _PLACES if os.path.isdir(place)
            for name in os.listdir(place) if 'rueda' in name}


def test_nothing_is_left_when_all_are_killed_at_once(daemons):
    before = _names()
    daemon = daemons(lifeline=True)
    log_folder = {daemon.folder}
    group = _started(daemon, 3)
    assert len(counters.abstract_sockets(daemon.socket[1:])) == 2
    for pid in (daemon.pid, *group.pids):
        os.kill(pid, signal.SIGKILL)
    daemon.process.wait()
    for member in group:
        assert os.WTERMSIG(member.reap()) == signal.SIGKILL
    assert [counters.state(pid) for pid in (daemon.pid, *group.pids)] == [''] * 4
    assert counters.abstract_sockets(daemon.socket[1:]) == []
    left = {name for name in _names() - before - log_folder
            if daemon.socket[1:] in name or not name.startswith('/tmp/rueda-')}
    assert left == set()
    group.close()


def test_a_rank_of_a_dead_private_daemon_is_told(daemons):
    daemon = daemons(lifeline=True)
    with ranks.Group(daemon.socket, 2, _sum_again) as group:
        group.hear()
        daemon.kill()
        group.tell()
        assert [code for code, _ in group.results()] == [native.DAEMON_LOST] * 2


def _sum_again(rank):
    with rank.open() as session:
        buffer = session.alloc(10)
        session.allreduce('x', buffer)
        rank.tell()
        rank.hear()
        return native.failure_of(
            lambda: session.wait(session.submit(native.make_op(native.ALLREDUCE, 'y', buffer))))
