# SPDX-License-Identifier: Apache-2.0
"""A killed daemon hangs nobody, and a new one on its socket serves at once."""

import os
import signal
import socket
import stat
import subprocess
import time

import pytest

from kit import counters, native, programs, ranks, reference, steps, waiting
from kit.daemon import Daemon, connect, status_address

_LOST_WITHIN = 1.0
_SERVES_WITHIN = 2.0
_RANKS = 3


def _wait_somehow(rank, step):
    """Runs a step until the session fails; returns the moment, the code and the text."""
    session = rank.open(isolated=steps.is_isolated(step))
    try:
        steps.STEPS[step](rank, session, 0)
    except native.Failure as failure:
        return time.monotonic(), failure.code, failure.text
    raise AssertionError('the step ended without a failure')


@pytest.mark.parametrize('step', ['waits in direct', 'waits in async', 'big async', 'gather',
                                  'isolated sum', 'isolated gather'])
def test_every_wait_for_the_daemon_ends_when_it_is_killed(daemons, dice, measured, step):
    daemon = daemons()
    with ranks.Group(daemon.socket, _RANKS, _wait_somehow, step) as group:
        group.hear()
        time.sleep(dice.random() * 0.01)  # A random moment of the step, not a synchronisation.
        began = daemon.kill()
        if step == 'waits in direct':
            group.tell()
        results = group.results(10)
    _check_lost(results, began, measured)


@pytest.mark.parametrize('step', ['big direct', 'big foreign', 'broadcast', 'barrier', 'groups'])
def test_every_wait_for_a_peer_ends_when_the_daemon_is_killed(daemons, dice, measured, step):
    """One rank is stopped in the middle of its loop, so that the others wait for it."""
    daemon = daemons()
    with ranks.Group(daemon.socket, _RANKS, _wait_somehow, step) as group:
        group.hear()
        time.sleep(dice.random() * 0.01)  # A random moment of the step, not a synchronisation.
        group[0].signal(signal.SIGSTOP)
        waiting.until(lambda: counters.state(group[0].pid) == 'T', 5, 'the rank stops')
        began = daemon.kill()
        results = [group[number].result(10) for number in (1, 2)]
        _check_lost(results, began, measured)
        continued = group[0].signal(signal.SIGCONT)
        _check_lost([group[0].result(10)], continued, measured)


def _check_lost(results, began, measured):
    delays = [when - began for when, _, _ in results]
    assert {code for _, code, _ in results} == {native.DAEMON_LOST}, results
    assert reference.is_within(max(delays), _LOST_WITHIN), delays
    measured(f'DAEMON_LOST after {max(delays) * 1000:.0f} ms at the latest')


def _sum_without_pause(rank):
    """Tiny sums, which need no daemon; then one that does. Returns (sums, code)."""
    with rank.open() as session:
        buffer = session.alloc(4)
        rank.tell()
        done = 0
        try:
            while not rank.has_mail():
                buffer.fill(1)
                session.allreduce('tiny', buffer)
                assert buffer.holds(rank.size)
                done += 1
            session.wait(session.submit(native.make_op(native.ALLREDUCE, 'daemon', buffer)))
        except native.Failure as failure:
            return done, failure.code
        return done, native.OK


def test_sums_that_need_no_daemon_stay_right_until_the_loss_is_noticed(daemons):
    daemon = daemons()
    with ranks.Group(daemon.socket, 2, _sum_without_pause) as group:
        group.hear()
        daemon.kill()
        group.tell('enough')
        results = group.results(10)
    assert {code for _, code in results} == {native.DAEMON_LOST}, results


def _open_alone(rank):
    rank.tell()
    code, text = native.failure_of(rank.open)
    return time.monotonic(), code, text


def test_a_rank_that_waits_for_others_in_open_learns_of_the_death(daemons):
    daemon = daemons()
    with ranks.Group(daemon.socket, 2, _open_alone, numbers=[0]) as group:
        group.hear()
        began = daemon.kill()
        when, code, _ = group[0].result()
    # UNAVAILABLE if it had not connected yet.
    assert code in (native.DAEMON_LOST, native.UNAVAILABLE)
    assert when - began <= _LOST_WITHIN


def _one_sum(rank):
    with rank.open() as session:
        buffer = session.alloc(1000).fill(rank.number)
        session.allreduce('x', buffer)
        return buffer.holds(sum(range(rank.size))), time.monotonic()


@pytest.fixture
def folder(tmp_path):
    """An empty folder for a daemon's sockets, with a short path."""
    return str(tmp_path)


def test_a_restarted_daemon_replaces_the_stale_socket_and_serves_new_jobs(folder, measured):
    address = os.path.join(folder, 'rueda.sock')
    with Daemon(socket=address) as first:
        with ranks.Group(address, 2, _wait_somehow, 'waits in async') as group:
            group.hear()
            first.kill()
            assert stat.S_ISSOCK(os.lstat(address).st_mode)
            began = time.monotonic()
            with Daemon(socket=address) as second:
                served = time.monotonic() - began
                results = ranks.run(address, 2, _one_sum, job='new')
                summed = max(when for _, when in results) - began
                assert all(right for right, _ in results)
                assert {code for _, code, _ in group.results()} == {native.DAEMON_LOST}
                assert second.is_alive()
    assert summed <= _SERVES_WITHIN, summed
    measured(f'serves {served * 1000:.0f} ms after its start, new job summed after '
             f'{summed * 1000:.0f} ms')


def test_a_second_daemon_says_so_and_leaves_the_first_alone(folder):
    address = os.path.join(folder, 'rueda.sock')
    with Daemon(socket=address) as first:
        with Daemon(socket=address, ready=False) as second:
            assert second.wait(5) == 3
            text = '\n'.join(second.log())
            assert 'another daemon listens on ' + address in text, text
        connect(address).close()
        connect(status_address(address), kind=1).close()
        assert all(right for right, _ in ranks.run(address, 2, _one_sum))
        assert first.is_alive()


def test_a_second_daemon_on_an_abstract_name_says_so(daemon):
    with Daemon(socket=daemon.socket, ready=False) as second:
        assert second.wait(5) == 3
        assert 'another daemon listens on ' + daemon.socket in '\n'.join(second.log())


@pytest.mark.parametrize('flags, environment, named', [
    (['--workers', 'many'], {}, 'workers'),
    (['--no-such-flag'], {}, 'no-such-flag'),
    (['--handshake-timeout-ms', '1'], {}, 'handshake-timeout-ms'),
    (['--lifeline-fd', '0'], {}, 'lifeline-fd'),
    ([], {'RUEDAD_WORKERS': '65'}, 'RUEDAD_WORKERS'),
    (['--config', '/nonexistent/rueda.yaml'], {}, '/nonexistent/rueda.yaml'),
])
def test_a_bad_setting_is_named(flags, environment, named):
    with Daemon(*flags, environment=environment, ready=False) as daemon:
        assert daemon.wait(5) == 2
        assert named in '\n'.join(daemon.log())


def test_a_bad_line_of_the_file_is_named(folder):
    path = os.path.join(folder, 'rueda.yaml')
    with open(path, 'w', encoding='ascii') as file:
        file.write('workers: 2\nnonsense: 1\n')
    with Daemon('--config', path, ready=False) as daemon:
        assert daemon.wait(5) == 2
        text = '\n'.join(daemon.log())
        assert path in text and 'line 2' in text and 'nonsense' in text


@pytest.mark.parametrize('what', ['missing folder', 'folder', 'file'])
def test_an_unusable_socket_path_is_named_and_left_alone(folder, what):
    address = os.path.join(folder, 'rueda.sock')
    if what == 'missing folder':
        address = os.path.join(folder, 'none', 'rueda.sock')
    elif what == 'folder':
        os.makedirs(os.path.join(address, 'full'))
    else:
        with open(address, 'w', encoding='ascii') as file:
            file.write('precious')
    with Daemon(socket=address, ready=False) as daemon:
        assert daemon.wait(5) == 5
        assert address in '\n'.join(daemon.log())
    if what == 'file':
        with open(address, encoding='ascii') as file:
            assert file.read() == 'precious'
    elif what == 'folder':
        assert os.path.isdir(address)


def test_a_status_port_in_use_is_named(daemons, folder):
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        address = os.path.join(folder, 'rueda.sock')
        with Daemon('--status-tcp', f'127.0.0.1:{port}', socket=address, ready=False) as daemon:
            assert daemon.wait(10) == 4
            assert str(port) in '\n'.join(daemon.log())
        assert not os.path.exists(address), 'the socket of a daemon that did not start is left'


def test_check_config_prints_every_setting_and_starts_nothing(folder):
    address = os.path.join(folder, 'rueda.sock')
    done = subprocess.run([programs.daemon(), '--socket', address, '--check-config'],
                          env=programs.clean_environment(), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=10, text=True, check=True)
    assert f'socket = {address}' in done.stdout and 'drain-seconds = 30' in done.stdout
    assert not os.path.exists(address)


def test_a_stopped_daemon_removes_its_sockets(folder):
    address = os.path.join(folder, 'rueda.sock')
    with Daemon(socket=address) as daemon:
        assert sorted(os.listdir(folder)) == ['rueda.sock', 'status.sock']
        daemon.signal(signal.SIGTERM)
        assert daemon.wait(5) == 0
        assert os.listdir(folder) == []
