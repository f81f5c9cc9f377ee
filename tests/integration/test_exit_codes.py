# SPDX-License-Identifier: Apache-2.0
"""How ruedad says why it ends: the documented exit code, and a line that names the object."""

import os
import signal
import socket

import pytest

from kit.daemon import Daemon


def _ends_with(expected, *words, flags=(), address=None):
    with Daemon(*flags, socket=address, ready=False) as daemon:
        assert daemon.wait(5) == expected, daemon.log()
        text = '\n'.join(daemon.log())
        assert all(word in text for word in words), text


@pytest.fixture
def folder(tmp_path):
    """A folder with a path short enough for a socket."""
    os.chmod(tmp_path, 0o755)
    return str(tmp_path)


def _status_in_the_way(folder):
    """Puts something there that the daemon must not remove; returns a socket path beside it."""
    with open(os.path.join(folder, 'status.sock'), 'w', encoding='utf-8') as file:
        file.write('not a socket')
    return os.path.join(folder, 'rueda.sock')


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_daemon_with_0(number):
    with Daemon() as daemon:
        daemon.signal(number)
        assert daemon.wait(5) == 0, daemon.log()


def test_a_setting_out_of_range_is_2():
    _ends_with(2, 'workers', '65', flags=('--workers', '65'))


@pytest.mark.parametrize('address', ['nonsense', '0.0.0.0:0'])
def test_a_tcp_address_that_may_not_be_is_2(address):
    """Once it was 4, a taken port."""
    _ends_with(2, address, flags=('--status-tcp', address))


def test_a_socket_path_in_no_folder_is_5(folder):
    address = os.path.join(folder, 'missing', 'rueda.sock')
    _ends_with(5, address, address=address)


def test_a_taken_tcp_port_is_4():
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        address = '127.0.0.1:%d' % taken.getsockname()[1]
        _ends_with(4, address, flags=('--status-tcp', address))


@pytest.mark.parametrize('flags', [(), ('--status-tcp', '127.0.0.1:0')])
def test_a_status_socket_that_cannot_be_made_is_5(folder, flags):
    """Once it was 4, a taken port, whenever a TCP address was given too."""
    address = _status_in_the_way(folder)
    _ends_with(5, 'status.sock', flags=flags, address=address)
    assert os.listdir(folder) == ['status.sock']
