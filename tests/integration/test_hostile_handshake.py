# SPDX-License-Identifier: Apache-2.0
"""Connections that greet wrongly, slowly, not at all, or too often: closed with a reason."""

import os
import signal
import socket
import struct
import time

import pytest

from kit import counters, hostile, native, ranks, waiting
from kit.hostile import Client, hello, plain, segment_message
from kit.neighbour import Neighbour

_SO_PASSRIGHTS = 83

_HELLO_EXPECTED = f'this daemon expects {hostile.HELLO_BYTES}'

_WRONG_HELLOS = {
    'one byte': (b'R', 'wrong header'),
    'a header only': (hello()[:8], 'wrong header'),
    'cut': (hello()[:-1], 'wrong header'),
    'cut, and says so': (hello(announced=hostile.HELLO_BYTES - 1)[:-1], _HELLO_EXPECTED),
    'longer than it says': (hello() + b'\0', 'wrong header'),
    'longer, and says so': (hello(announced=hostile.HELLO_BYTES + 1) + b'\0', _HELLO_EXPECTED),
    'too large': (hello() + bytes(4096), 'cut'),
    'wrong magic': (hello(magic=0x52554543), 'wrong header'),
    'a goodbye first': (plain(hostile.GOODBYE), 'no hello'),
    'a request first': (segment_message(hostile.ALLOC_SEGMENT, size=4096), 'no hello'),
    'a welcome': (hello(kind=hostile.WELCOME), 'no hello'),
    'a later version': (hello(versions=(7, 9)), 'speaks protocol 7 to 9, this daemon 3 to 3'),
    'an earlier version': (hello(versions=(0, 0)), 'protocol 0 to 0'),
    'negative rank': (hello(rank=-1), 'rank -1 of 1'),
    'rank beyond': (hello(rank=2, size=2), 'rank 2 of 2'),
    'least rank': (hello(rank=-1 << 31, size=2), 'rank -2147483648 of 2'),
    'size 0': (hello(size=0), 'of 0'),
    'negative size': (hello(rank=-3, size=-2), 'rank -3 of -2'),
    'size 65': (hello(size=65), 'at most 64'),
    'greatest size': (hello(size=(1 << 31) - 1), 'of 2147483647'),
    'local rank': (hello(size=2, local_rank=5), 'local rank 5'),
    'ranks elsewhere': (hello(size=4, local_size=2), 'on this host'),
    'no job': (hello(job=b''), 'a job id has 1 to 127 bytes'),
    'job without end': (hello(job=b'j' * 128), 'a job id has 1 to 127 bytes'),
    'host without end': (hello(host=b'h' * 256), 'a host name has at most 255 bytes'),
}


def test_wrong_hellos_are_refused_with_a_reason(guarded):
    daemon = guarded()
    for case, (data, named) in _WRONG_HELLOS.items():
        with Client(daemon.socket) as client:
            client.send(data)
            code, text = client.refusal(2)
            assert code and named in text, (case, code, text)


def test_an_empty_packet_ends_the_connection(guarded):
    daemon = guarded()
    with Client(daemon.socket) as client:
        client.socket.send(b'')
        assert client.refusal(2) == (None, '')


_MESSAGES = {
    'a second hello': (hello(), 'type 1 is not for the daemon'),
    'a welcome': (plain(hostile.WELCOME), 'type 2'),
    'job ready': (plain(hostile.JOB_READY), 'type 4'),
    'a grant': (segment_message(hostile.SEGMENT_GRANTED), 'type 6'),
    'a peer segment': (segment_message(hostile.PEER_SEGMENT), 'type 8'),
    'type 65535': (plain(65535), 'type 65535'),
    'a short request': (plain(hostile.ALLOC_SEGMENT), 'wrong size'),
    'no bytes': (segment_message(hostile.ALLOC_SEGMENT, size=0), 'not whole pages'),
    'part of a page': (segment_message(hostile.ALLOC_SEGMENT, size=4097), 'not whole pages'),
    'a segment that is not there': (segment_message(hostile.SEGMENT_READY, number=9),
                                    'segment 9 is not this rank'),
    'segment 2^32 - 1': (segment_message(hostile.SEGMENT_READY, number=0xffffffff), 'is not this'),
    'random': (b'\x44\x45\x55\x52' + bytes(range(200)), 'wrong header'),
}


def test_wrong_messages_of_a_member_end_its_session(guarded):
    daemon = guarded()
    for case, (data, named) in _MESSAGES.items():
        with Client(daemon.socket) as client:
            client.join(job=b'hostile').await_ready()
            client.send(data)
            code, text = client.refusal(2)
            assert code == native.PROTOCOL_ERROR and named in text, (case, code, text)


def test_impossible_amounts_of_memory_are_refused_and_the_session_goes_on(guarded):
    daemon = guarded()
    with Client(daemon.socket) as client:
        client.join(job=b'hostile').await_ready()
        for size in (1 << 63, (1 << 64) - 4096, 1 << 50):
            with pytest.raises(hostile.Refused) as refused:
                client.segment(size)
            assert refused.value.args[0] == native.RESOURCE_EXHAUSTED, refused.value
        client.segment(4096)


@pytest.mark.parametrize('seconds', [3.0])
def test_random_packets_neither_harm_nor_hang(guarded, dice, seconds):
    daemon = guarded()
    good = hello(job=b'hostile')
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        with Client(daemon.socket) as client:
            try:
                if dice.random() < 0.5:
                    client.join(job=b'random %d' % tried).await_ready()
                for _ in range(dice.randrange(1, 4)):
                    data = bytearray(good if dice.random() < 0.5 else dice.randbytes(
                        dice.randrange(1, 2100)))
                    for _ in range(dice.randrange(0, 4)):
                        data[dice.randrange(len(data))] = dice.randrange(256)
                    if dice.random() < 0.3:
                        struct.pack_into('=IHH', data.ljust(8, b'\0'), 0, hostile.MAGIC,
                                         dice.randrange(14), len(data))
                    client.send(bytes(data))
                if dice.random() < 0.5:
                    client.refusal(0.2)
            except (hostile.Refused, OSError):
                pass  # It closed, which it may at any time here.
        tried += 1
    assert tried > 50
    assert daemon.is_alive()


def test_a_client_that_never_greets_is_closed_in_time(guarded):
    daemon = guarded('--handshake-timeout-ms', '400')
    clients = [Client(daemon.socket) for _ in range(20)]
    began = time.monotonic()
    for client in clients:
        code, text = client.refusal(3)
        assert code == native.DEADLINE_EXCEEDED and '400 ms' in text, (code, text)
        client.close()
    assert 0.3 <= time.monotonic() - began <= 1.0


def test_a_client_that_greets_late_but_in_time_is_welcome(guarded):
    daemon = guarded('--handshake-timeout-ms', '1500')
    with Client(daemon.socket) as client:
        time.sleep(0.5)  # The lateness that is tested.
        client.join(job=b'late').await_ready()


def test_half_open_connections_are_forgotten(guarded):
    daemon = guarded()
    for how in (socket.SHUT_WR, socket.SHUT_RD, socket.SHUT_RDWR):
        for joined in (False, True):
            with Client(daemon.socket) as client:
                if joined:
                    client.join(job=b'half open').await_ready()
                client.socket.shutdown(how)
                if how == socket.SHUT_RD:
                    client.send(plain(hostile.GOODBYE))
                waiting.until(lambda: 'half open' not in _jobs(daemon), 5,
                              'the session is forgotten')


def _jobs(daemon):
    return [job['id'] for job in daemon.ctl('jobs')[0]['jobs']]


@pytest.mark.seconds(90)
def test_a_flood_of_connections_is_bounded_and_ends(guarded, measured):
    daemon = guarded('--max-sessions', '40', '--handshake-timeout-ms', '500')
    refused, held = 0, []
    began = time.monotonic()
    for _ in range(400):
        try:
            held.append(Client(daemon.socket))
        except BlockingIOError:
            refused += 1
    texts = set()
    for client in held:
        code, text = client.refusal(5)
        texts.add((code, text.split(':')[0]))
        client.close()
    measured(f'400 connections turned away in {time.monotonic() - began:.2f} s')
    assert {code for code, _ in texts} == {native.RESOURCE_EXHAUSTED, native.DEADLINE_EXCEEDED}
    assert time.monotonic() - began < 10
    # A line a second, not one a connection.
    assert len(daemon.log('refused')) <= 12, daemon.log('refused')
    assert ranks.run(daemon.socket, 2, _sum, job='after') == [True, True]


def _sum(rank):
    with rank.open() as session:
        buffer = session.alloc(100).fill(1)
        session.allreduce('x', buffer)
        return buffer.holds(rank.size)


def _descriptors(kind):
    """(descriptors to send, objects to keep until then)."""
    if kind == 'pipe':
        return list(os.pipe())
    if kind == 'folder':
        return [os.open('/', os.O_RDONLY)]
    if kind == 'memfd':
        memory = os.memfd_create('hostile')
        os.ftruncate(memory, 1 << 40)
        return [memory]
    if kind == 'null':
        return [os.open('/dev/null', os.O_RDONLY)]
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    return [part.detach() for part in pair]


@pytest.mark.parametrize('kind', ['pipe', 'folder', 'memfd', 'null', 'sockets'])
@pytest.mark.parametrize('count', [1, 5, 253])
def test_descriptors_that_nobody_asked_for_are_refused(guarded, kind, count):
    """By the kernel since Linux 6.16, else by the daemon, which closes them and the session."""
    daemon = guarded()
    for joined in (False, True):
        for _ in range(5):
            fds = _descriptors(kind)
            with Client(daemon.socket) as client:
                if joined:
                    client.join(job=b'fds').await_ready()
                data = plain(hostile.GOODBYE) if joined else hello(job=b'fds')
                try:
                    client.send(data, (fds * count)[:count])
                except PermissionError:
                    client.send(data)
                    continue
                code, text = client.refusal(2)
                assert code == native.PROTOCOL_ERROR and 'descriptors' in text, (code, text)
                for fd in fds:
                    os.close(fd)


def test_a_descriptor_in_an_empty_packet_is_closed(guarded):
    daemon = guarded()
    read_end, write_end = os.pipe()
    with Client(daemon.socket) as client:
        try:
            socket.send_fds(client.socket, [b''], [write_end])
            assert client.refusal(2) == (None, '')
        except PermissionError:
            pass  # The kernel keeps it from the daemon.
        os.close(write_end)
        # End of file comes only when there is no copy in the daemon.
        assert os.read(read_end, 1) == b''
    os.close(read_end)


def _slow_to_close():
    """A TCP socket whose last close() waits a minute for a peer that does not read."""
    listener = socket.socket()
    listener.bind(('127.0.0.1', 0))
    listener.listen()
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('=ii', 1, 60))
    slow.connect(listener.getsockname())
    peer, _ = listener.accept()
    slow.setblocking(False)
    try:
        while True:
            slow.send(bytes(1 << 16))
    except BlockingIOError:
        pass
    return slow, (listener, peer)


def _can_refuse_descriptors():
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
        except OSError:
            return False
        return True


@pytest.mark.skipif(not _can_refuse_descriptors(), reason='needs SO_PASSRIGHTS of Linux 6.16')
def test_a_descriptor_that_is_slow_to_close_holds_nobody_up(guarded):
    """Once, whoever sent a lingering socket and let the daemon close it stopped the engine."""
    daemon = guarded()
    slow, kept = _slow_to_close()
    with Client(daemon.socket) as client:
        daemon.signal(signal.SIGSTOP)  # Ours shall be closed before the daemon's copy is.
        try:
            with pytest.raises(PermissionError):
                client.send(hello(job=b'slow'), [slow.fileno()])
        finally:
            daemon.signal(signal.SIGCONT)
        assert ranks.run(daemon.socket, 2, _sum, job='meanwhile', seconds=5) == [True, True]
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('=ii', 0, 0))
    for part in (slow, *kept):
        part.close()


@pytest.mark.parametrize('greets', [False, True])
def test_a_daemon_out_of_descriptors_refuses_and_does_not_spin(daemons, measured, greets):
    daemon = daemons('--handshake-timeout-ms', '60000', max_fds=70)
    with Neighbour(daemon.socket) as neighbour:
        held = [Client(daemon.socket) for _ in range(60)]
        for number, client in enumerate(held if greets else []):
            client.send(hello(job=b'greedy %d' % number))
        assert neighbour.stop()[0] > 0
        before, began = counters.cpu_seconds(daemon.pid), time.monotonic()
        time.sleep(0.5)  # The span that is measured.
        used = (counters.cpu_seconds(daemon.pid) - before) / (time.monotonic() - began)
        measured(f'{used:.1%} of a core')
        assert used < 0.1
        for client in held:
            client.close()
    assert waiting.until(lambda: _works(daemon), 10, 'it serves again')


def _works(daemon):
    try:
        return ranks.run(daemon.socket, 2, _sum, job='after') == [True, True]
    except ranks.RankFailed:
        return False
