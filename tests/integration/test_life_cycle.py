# SPDX-License-Identifier: Apache-2.0
"""Opening, closing, forking, waiting for others, draining, and doing nothing."""

import os
import signal
import statistics
import time

import pytest

from kit import counters, hostile, native, ranks, reference, waiting

_OPEN_CLOSE_MEDIAN = 0.020
_CYCLES = 100
_CYCLES_LIMIT = 10.0


def _open_and_close(rank, cycles):
    """Opens, sums, closes; returns the seconds of each open and close without the sum."""
    took = []
    for number in range(cycles):
        begin = time.monotonic()
        session = rank.open()
        opened = time.monotonic()
        buffer = session.alloc(100).fill(number)
        session.allreduce('x', buffer)
        assert buffer.holds(rank.size * number), number
        begin_close = time.monotonic()
        session.close()
        took.append(opened - begin + time.monotonic() - begin_close)
    return took


def test_a_hundred_cycles_of_two_ranks(daemon, measured):
    before = daemon.settled_holdings()
    ranks.run(daemon.socket, 2, _open_and_close, 3)
    resident = counters.resident_bytes(daemon.pid)
    began = time.monotonic()
    took = ranks.run(daemon.socket, 2, _open_and_close, _CYCLES)
    total = time.monotonic() - began
    median = statistics.median(took[0] + took[1])
    measured(f'{_CYCLES} cycles in {total:.2f} s, open and close {median * 1000:.1f} ms')
    assert total <= _CYCLES_LIMIT
    assert reference.is_within(median, _OPEN_CLOSE_MEDIAN, 6)
    counters.await_holdings(daemon.pid, before)
    assert counters.resident_bytes(daemon.pid) - resident < 4 << 20
    # Whoever closed properly was not lost.
    assert daemon.log('lost') == []
    assert daemon.ctl('status')[0]['counters']['ranks_lost'] == 0


def _fork_and_use(rank):
    """The child asks, closes and ends; the parent's session goes on. Returns the child's report."""
    session = rank.open()
    buffer = session.alloc(1000).fill(1)
    session.allreduce('before', buffer)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        codes = [native.failure_of(call)[0] for call in (
            session.health, session.barrier, lambda: session.alloc(10),
            lambda: session.submit(native.make_op(native.ALLREDUCE, 'x', buffer)))]
        session.close()
        os.write(write_end, bytes(codes))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, 'the forked child crashed'
    codes = list(os.read(read_end, 16))
    for number in range(5):
        buffer.fill(1)
        session.allreduce('after', buffer)
        session.wait(session.submit(native.make_op(native.ALLREDUCE, 'async', buffer)))
        assert buffer.holds(rank.size ** 2), number
    session.close()
    return codes


def test_a_forked_child_is_refused_and_its_close_ends_nothing(daemon):
    for codes in ranks.run(daemon.socket, 2, _fork_and_use):
        assert codes == [native.NOT_INITIALIZED] * 4
    assert daemon.log('lost') == []


def _own_session_in_child(rank):
    """A child opens a session of its own in another job while the parent's lives."""
    session = rank.open()
    child = ranks.start(_single, socket=rank.socket, job=f'child of {rank.number}')
    right = child.result()
    child.close()
    session.barrier()
    session.close()
    return right


def _single(rank):
    with rank.open() as session:
        buffer = session.alloc(10).fill(3)
        session.allreduce('x', buffer)
        return buffer.holds(3)


def test_a_forked_child_opens_its_own_session(daemon):
    assert ranks.run(daemon.socket, 2, _own_session_in_child) == [True, True]


def _leave_child_behind(rank):
    """Rank 1 forks a child that outlives it; rank 0 waits for rank 1."""
    session = rank.open()
    buffer = session.alloc(100)
    if rank.number == 1:
        child = os.fork()
        if child == 0:
            signal.pause()  # Holds every descriptor and mapping of the parent.
        rank.tell(child)
        rank.hear()
    rank.tell()
    code, text = native.failure_of(session.allreduce, 'x', buffer)
    return time.monotonic(), code, text


def test_a_living_child_does_not_hide_the_death_of_its_parent(daemon, measured):
    with ranks.Group(daemon.socket, 2, _leave_child_behind) as group:
        child = group[1].hear()
        try:
            group[0].hear()
            killed = group[1].kill()
            when, code, text = group[0].result()
            assert counters.state(child) == 'S'
        finally:
            os.kill(child, signal.SIGKILL)
        assert code == native.RANK_LOST and 'killed by signal 9' in text, text
        assert reference.is_within(when - killed, 0.2), when - killed
        measured(f'lost {1000 * (when - killed):.1f} ms after the kill')


def _open_briefly(rank, start_ms):
    began = time.monotonic()
    code, text = native.failure_of(rank.open, start_ms=start_ms)
    return time.monotonic() - began, code, text


def test_a_start_that_times_out_names_who_is_missing(daemon):
    with ranks.Group(daemon.socket, 5, _open_briefly, 700, numbers=[0, 3]) as group:
        for took, code, text in group.results():
            assert code == native.DEADLINE_EXCEEDED
            assert "job 'job'" in text and '700 ms' in text, text
            # The first to give up frees its place, so the other may miss it too.
            assert 'ranks [1, 2, 4]' in text or 'ranks [0, 1, 2, 4]' in text or \
                'ranks [1, 2, 3, 4]' in text, text
            assert 0.65 <= took <= 1.5, took
    waiting.until(lambda: daemon.ctl('jobs')[0]['jobs'] == [], 5, 'the job is forgotten')
    assert all(right for right in ranks.run(daemon.socket, 2, _sums))


def _sums(rank):
    with rank.open() as session:
        buffer = session.alloc(1000).fill(rank.number)
        session.allreduce('x', buffer)
        return buffer.holds(sum(range(rank.size)))


def _open_alone(rank):
    session = rank.open()
    rank.tell()
    rank.hear()
    session.close()


def _waits_in_open(rank):
    """Opens; says whether the sum is right."""
    rank.tell()
    return _sums(rank)


def test_a_rank_killed_while_the_job_forms_is_replaced(daemon):
    before = daemon.settled_holdings()
    with ranks.Group(daemon.socket, 3, _waits_in_open, numbers=[0, 1]) as group:
        group.hear()
        waiting.until(lambda: _running(daemon) == 2, 5, 'two ranks are there')
        group[1].kill()
        waiting.until(lambda: _running(daemon) == 1, 5, 'the place is free again')
        with ranks.Group(daemon.socket, 3, _waits_in_open, numbers=[1, 2]) as rest:
            assert rest.results() == [True, True] and group[0].result()
    counters.await_holdings(daemon.pid, before)


def _running(daemon):
    jobs = daemon.ctl('jobs')[0]['jobs']
    return sum(rank['state'] == 'running' for job in jobs for rank in job['ranks'])


def test_places_that_are_taken_or_do_not_fit_are_refused(daemon):
    with ranks.Group(daemon.socket, 2, _open_alone) as group:
        group.hear()
        for number, size, isolated, wanted, named in (
                (1, 2, False, native.ALREADY_EXISTS, 'rank 1 (pid'),
                (0, 3, False, native.MISMATCH, 'has 2 ranks'),
                (0, 2, True, native.MISMATCH, 'isolated')):
            member = ranks.start(_open_briefly, 1000, number=number, size=size, isolated=isolated,
                                 socket=daemon.socket)
            _, code, text = member.result()
            member.close()
            assert code == wanted and named in text, text
        group.tell()
        group.results()


def test_no_daemon_is_said_with_advice():
    code, text = native.failure_of(native.Session, '@rueda-test-nobody')
    assert code == native.UNAVAILABLE and '@rueda-test-nobody' in text and 'nothing listens' in text
    code, text = native.failure_of(native.Session, '/nonexistent/rueda.sock')
    assert code == native.UNAVAILABLE and 'is the rueda service running?' in text


def _stuck(rank):
    """Rank 1 never comes."""
    session = rank.open()
    buffer = session.alloc(10)
    rank.tell()
    if rank.number == 1:
        rank.hear()
    return native.failure_of(session.allreduce, 'stuck', buffer)


def test_sigterm_ends_an_idle_daemon_at_once(daemons):
    daemon = daemons()
    began = daemon.signal(signal.SIGTERM)
    assert daemon.wait(5) == 0
    assert time.monotonic() - began < 1.0


def test_sigterm_waits_for_jobs_and_refuses_new_ones(daemons):
    daemon = daemons('--drain-seconds', '20')
    with ranks.Group(daemon.socket, 2, _open_alone) as group:
        group.hear()
        daemon.signal(signal.SIGTERM)
        waiting.until(lambda: daemon.ctl('status')[0]['daemon']['draining'], 5, 'it drains')
        code, text = native.failure_of(native.Session, daemon.socket, job='late')
        assert code == native.UNAVAILABLE and 'draining' in text, (code, text)
        assert daemon.is_alive()
        began = time.monotonic()
        group.tell()
        group.results()
        assert daemon.wait(5) == 0
        assert time.monotonic() - began < 1.0


def test_sigterm_gives_up_on_a_stuck_job_after_the_drain(daemons):
    daemon = daemons('--drain-seconds', '1')
    with ranks.Group(daemon.socket, 2, _stuck) as group:
        group.hear()
        began = daemon.signal(signal.SIGTERM)
        assert daemon.wait(5) == 0
        assert 0.9 <= time.monotonic() - began < 2.0
        code, text = group[0].result()
        assert code == native.SHUT_DOWN and 'the daemon is stopping' in text, (code, text)


def test_a_second_sigterm_ends_it_at_once(daemons):
    daemon = daemons('--drain-seconds', '60')
    with ranks.Group(daemon.socket, 2, _stuck) as group:
        group.hear()
        daemon.signal(signal.SIGTERM)
        waiting.until(lambda: daemon.log('draining'), 5, 'it drains')
        began = daemon.signal(signal.SIGTERM)
        assert daemon.wait(5) == 0
        assert time.monotonic() - began < 1.0
        assert group[0].result()[0] == native.SHUT_DOWN


def _idle(rank):
    """Works by every path, then idles. Tells its thread counts and its own processor time."""
    before = counters.thread_count(os.getpid())
    with rank.open() as session:
        buffer = session.alloc(100000).fill(0)
        session.allreduce('direct', buffer)
        session.wait(session.submit(native.make_op(native.ALLREDUCE, 'async', buffer)))
        session.gather('rows', buffer)
        rank.tell((before, counters.thread_count(os.getpid())))
        rank.hear()


def test_idle_daemon_and_clients_use_no_processor(daemon, measured):
    seconds = 5.0
    with ranks.Group(daemon.socket, 2, _idle) as group:
        for before, after in group.hear():
            assert after == before == 1, 'the library has made a thread'
        pids = (daemon.pid, *group.pids)
        ticks = [counters.cpu_ticks(pid) for pid in pids]
        nanoseconds = [counters.cpu_seconds(pid) for pid in pids]
        time.sleep(seconds)  # The span that is measured.
        used = [(counters.cpu_ticks(pid) - tick) / 100 for pid, tick in zip(pids, ticks)]
        exact = [counters.cpu_seconds(pid) - span for pid, span in zip(pids, nanoseconds)]
        group.tell()
        group.results()
    measured(f'daemon {exact[0] / seconds:.5%} of a core, clients '
             f'{max(exact[1:]) / seconds:.5%}')
    assert used[0] <= 0.001 * seconds + 0.01 and exact[0] <= 0.001 * seconds, (used, exact)
    assert max(exact[1:]) <= 0.001, exact  # What is left of its last word to the test.


def _interrupted(rank):
    """Waits for a rank that does not come until a callback stops it."""
    began = time.monotonic()
    session = rank.open(interrupted=lambda: time.monotonic() - began > 0.4)
    rank.tell()
    if rank.number == 1:
        rank.hear()
    code, _ = native.failure_of(session.allreduce, 'x', session.alloc(10))
    took = time.monotonic() - began
    rank.tell()
    rank.hear()
    session.close()
    return code, took


@pytest.mark.parametrize('isolated', [False, True])
def test_an_interrupted_wait_returns_within_the_promised_time(daemon, isolated):
    with ranks.Group(daemon.socket, 2, _interrupted, isolated=isolated) as group:
        group.hear()
        group[0].hear()
        group[0].tell()
        code, took = group[0].result()
        assert code == native.INTERRUPTED
        assert took <= 0.4 + 0.25, took


def test_a_place_left_a_moment_ago_can_be_taken(daemon):
    """Once, a hello that came with the end of the old rank was refused as a second one."""
    for _ in range(50):
        with hostile.Client(daemon.socket) as first:
            first.send(hostile.hello(job=b'again', rank=0, size=2))
        with hostile.Client(daemon.socket) as second:
            second.join(job=b'again', rank=0, size=2)
