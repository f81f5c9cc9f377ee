# SPDX-License-Identifier: Apache-2.0
"""Members that write what they like into their rings, boards and segments. The daemon closes them
with a reason where the contract is broken, and goes on in any case."""

import fcntl
import os
import random
import struct
import time

import pytest

from kit import counters, hostile, native, ranks, waiting
from kit.hostile import Client, submission

_F_ADD_SEALS, _F_SEAL_WRITE = 1033, 8
_PAGE = 4096


def _member(daemon, **fields):
    client = Client(daemon.socket)
    fields.setdefault('job', b'hostile')
    return client.join(**fields).await_ready()


def _expect_end(client, case, named, code=native.PROTOCOL_ERROR):
    got, text = client.refusal(3)
    assert got == code and named in text, (case, got, text)


@pytest.mark.parametrize('tail', [2049, 5000, 0x7fffffff, 0xffffffff, 0x80000000])
def test_an_impossible_index_of_the_submission_ring(guarded, tail):
    daemon = guarded()
    with _member(daemon) as client:
        client.set_word(hostile.SUBMIT_TAIL, tail)
        client.ring()
        _expect_end(client, tail, 'impossible index in the submission ring')


@pytest.mark.parametrize('head', [1, 77, 0x7fffffff, 0xfffff000])
def test_an_impossible_index_of_the_completion_ring(guarded, head):
    daemon = guarded()
    with _member(daemon) as client:
        client.set_word(hostile.COMPLETE_HEAD, head)
        client.put(submission(op=3, request=1))
        _expect_end(client, head, 'impossible index in the completion ring')


_OUTSIDE = (1 << 64) - 64
_ENTRIES = {
    'type 0': (submission(kind=0), 'entry of type 0'),
    'type 9': (submission(kind=9), 'entry of type 9'),
    'type 255': (submission(kind=255), 'entry of type 255'),
    'a tail first': (submission(kind=hostile.TAIL), 'entry of type 1'),
    'kind': (submission(op=9), 'unknown kind 9'),
    'no splits': (submission(op=4, shape=(4,)), '0 splits for'),
    'splits beyond': (submission(op=4, shape=(4,), numbers=(5,), memory=(1, 1, 0, 0)),
                      'splits of more than the 4 rows'),
    'negative split': (submission(op=4, shape=(4,), numbers=(-1,), memory=(1, 1, 0, 0)),
                       'splits of more than'),
    'numbers with a sum': (submission(op=3, numbers=(1,)), 'that takes none'),
    'no set to remove': (submission(op=8), 'process set to remove: []'),
    'two sets to remove': (submission(op=8, numbers=(1, 2)), 'process set to remove: [1, 2]'),
    'a negative set': (submission(op=8, numbers=(-1,)), 'process set to remove: [-1]'),
    'too many splits': (submission(op=4, shape=(4,), fetch=65), '65 numbers or a name'),
    'splits without end': (submission(op=4, shape=(4,), fetch=1 << 61), 'numbers or a name'),
    'scattered beyond': (submission(op=5, shape=(4096,), memory=(1, 1, 0, _PAGE)),
                         'leaves segment 1'),
    'dtype': (submission(dtype=17), 'dtype 17'),
    'reduce op 6': (submission(reduce_op=6), 'reduce op 6'),
    'reduce op 255': (submission(reduce_op=255), 'reduce op 255'),
    '65 dimensions': (submission(ndim=65), '65 dimensions'),
    '255 dimensions': (submission(ndim=255), '255 dimensions'),
    'name of 1025 bytes': (submission(name=b'n' * 1025), 'a name of 1025 bytes'),
    'name of 65535 bytes': (submission(name_bytes=65535), 'a name of 65535 bytes'),
    'tail not there': (submission(name_bytes=1000), 'whose tail was not published'),
    'no tail slot': (submission(name=b'n' * 100)[:1] + submission(), 'where a tail must follow'),
    'negative dimension': (submission(shape=(-1,)), 'dimension 0 of -1'),
    'least dimension': (submission(shape=(2, -1 << 63)), 'impossible tensor'),
    'too many elements': (submission(shape=(1 << 31, 1 << 31)), 'impossible tensor'),
    'product of zero': (submission(shape=(0, -5)), 'impossible tensor'),
    'no such segment': (submission(shape=(4,), memory=(9, 9, 0, 0)), 'segment 9 is not one of'),
    'segment 0': (submission(shape=(4,)), 'segment 0 is not one of'),
    'offset beyond': (submission(shape=(4,), memory=(1, 1, _PAGE, 0)), 'leaves segment 1'),
    'bytes beyond': (submission(shape=(1 << 40,), memory=(1, 1, 0, 0)), 'leaves segment 1'),
    'one byte beyond': (submission(shape=(1024,), memory=(1, 1, 1, 1)), 'leaves segment 1'),
    'offset wraps': (submission(shape=(64,), memory=(1, 1, _OUTSIDE, 0)), 'leaves segment 1'),
    'output beyond': (submission(shape=(4,), memory=(1, 1, 0, _OUTSIDE)), 'leaves segment 1'),
    'overlap': (submission(shape=(100,), memory=(1, 1, 0, 4)), 'overlap partly'),
    'huge group': (submission(op=3, group=(16385, 1)), 'group of 16385'),
    'greatest group': (submission(op=3, group=(0xffffffff, 1)), 'group of 4294967295'),
    'refused with no code': (submission(shape=(4,), flags=128), 'refused with code 0'),
    'refused as lost': (submission(shape=(4,), flags=128, memory=(4, 0, 0, 0)),
                        'refused with code 4'),
    'refused with any code': (submission(shape=(4,), flags=128, memory=(0xffffffff, 0, 0, 0)),
                              'refused with code 4294967295'),
    'a barrier without memory': (submission(op=3, flags=128, memory=(9, 0, 0, 0)),
                                 "barrier 'x' refused"),
    'a reason of 201 bytes': (submission(flags=128, memory=(9, 201, 0, 0)), 'a reason of 201'),
    'a reason without end': (submission(flags=128, memory=(9, 0xffffffff, 0, 0)),
                             'a reason of 4294967295'),
    'a reason not there': (submission(flags=128, memory=(9, 200, 0, 0)),
                           'whose tail was not published'),
    'fetch to nowhere': (submission(kind=hostile.FETCH, fetch=1, memory=(0, 7, 0, 0)),
                         'segment 7 is not one of'),
}


def test_entries_that_break_the_contract_end_the_session(guarded):
    daemon = guarded()
    for case, (slots, named) in _ENTRIES.items():
        with _member(daemon, job=case.encode()) as client:
            assert client.segment(_PAGE)[0] == 1
            client.put(slots)
            _expect_end(client, case, named)


_HARMLESS = {
    'scalar gather': (submission(op=1), native.MISMATCH),
    'a set of none': (submission(op=7), native.INVALID_ARGUMENT),
    'a set of strangers': (submission(op=7, numbers=(1,)), native.INVALID_ARGUMENT),
    'a set backwards': (submission(op=7, numbers=(1, 0)), native.INVALID_ARGUMENT),
    'the set of all': (submission(op=7, numbers=(0,)), native.ALREADY_EXISTS),
    'in no set': (submission(op=3, process_set=77), native.INVALID_ARGUMENT),
    'a set in no set': (submission(op=7, numbers=(0,), process_set=0xffffffff),
                        native.INVALID_ARGUMENT),
    'the set of all away': (submission(op=8, numbers=(0,)), native.INVALID_ARGUMENT),
    'no set away': (submission(op=8, numbers=(5,)), native.INVALID_ARGUMENT),
    'join': (submission(op=6, priority=-(1 << 31)), native.OK),
    'join again': (submission(op=6, flags=127), native.OK),
    'no memory': (submission(shape=(2,), flags=128, memory=(9, 1, 0, 0), name_bytes=0),
                  native.RESOURCE_EXHAUSTED),
    'adasum of integers': (submission(dtype=4, reduce_op=2, shape=(2,), memory=(1, 1, 0, 0)),
                           native.INVALID_ARGUMENT),
    'adasum': (submission(reduce_op=2, shape=(9,), memory=(1, 1, 0, 0)), native.OK),
    'unknown gather': (submission(kind=hostile.FETCH, fetch=5, memory=(0, 1, 0, 0)),
                       native.INVALID_ARGUMENT),
    'root beyond': (submission(op=2, shape=(4,), memory=(1, 1, 0, 0), root=7),
                    native.INVALID_ARGUMENT),
    'negative root': (submission(op=2, shape=(4,), memory=(1, 1, 0, 0), root=-1),
                      native.INVALID_ARGUMENT),
    'scales': (submission(shape=(4,), memory=(1, 1, 0, 0),
                          scales=(float('nan'), float('inf'))), native.OK),
    'empty name': (submission(op=3, name=b''), native.OK),
    'name of zeros': (submission(op=3, name=bytes(40)), native.OK),
    'greatest id': (submission(op=3, request=(1 << 64) - 1), native.OK),
    'zero elements': (submission(shape=(0, 1 << 40)), native.OK),
    'flags': (submission(op=3, flags=127, direct=0xffffffff), native.OK),
}


def test_odd_entries_that_the_contract_allows_get_an_outcome(guarded):
    daemon = guarded()
    with _member(daemon) as client:
        assert client.segment(_PAGE)[0] == 1
        for case, (slots, wanted) in _HARMLESS.items():
            client.put(slots)
            found = waiting.until(client.completions, 3, case)
            assert [code for _, code in found] == [wanted], (case, found)
        for kind in (hostile.RELEASE, hostile.WAIT_END, hostile.WAIT_REQUEST, hostile.WAIT_DIRECT,
                     hostile.LEAVE_SET):
            for request in (0, 1, 99, (1 << 64) - 1):
                client.put(submission(kind=kind, request=request, direct=request & 0xffffffff,
                                      process_set=request & 0xffffffff))
        client.put(submission(op=3, request=1000))
        assert waiting.until(client.completions, 3, 'a barrier') == [(1000, native.OK)]


def test_notes_of_sets_that_are_removed_and_left_in_any_order(guarded, dice):
    daemon = guarded()
    with Client(daemon.socket) as one, Client(daemon.socket) as other:
        clients = [one.join(job=b'sets', rank=0, size=2), other.join(job=b'sets', rank=1, size=2)]
        for client in clients:
            client.await_ready()
        for request in range(1, 60):
            agreed = submission(op=dice.choice([7, 8]), numbers=(dice.choice([0, 1]),),
                                request=request)
            for client in clients:
                for _ in range(dice.randrange(4)):
                    client.put(submission(kind=dice.choice([hostile.WAIT_DIRECT, hostile.WAIT_END,
                                                            hostile.LEAVE_SET]),
                                          direct=dice.randrange(3), request=dice.randrange(4),
                                          process_set=dice.randrange(4)))
            for client in clients:
                client.put(agreed)
            for client in clients:
                assert len(waiting.until(client.completions, 3, f'agreement {request}')) == 1
            assert daemon.ctl('pending')[1] == 0


def test_a_submission_before_the_job_is_complete(guarded):
    daemon = guarded()
    with Client(daemon.socket) as client:
        client.join(job=b'half', rank=1, size=2)
        client.put(submission(op=3))
        _expect_end(client, 'forming', 'before the job is complete')


def test_the_same_name_and_id_again_and_again(guarded):
    """One rank of two repeats itself; only the first waits, the rest are refused one by one."""
    daemon = guarded()
    with Client(daemon.socket) as other:
        with Client(daemon.socket) as client:
            client.join(job=b'twice', rank=0, size=2)
            other.join(job=b'twice', rank=1, size=2).await_ready()
            client.await_ready()
            for _ in range(50):
                client.put(submission(op=3, request=7))
            found = []

            def all_found():
                found.extend(client.completions())
                return len(found) >= 49

            waiting.until(all_found, 3, lambda: f'49 refusals: {found}')
            assert found == [(7, native.ALREADY_EXISTS)] * 49
            other.put(submission(op=3, request=1))
            assert waiting.until(client.completions, 3, 'the barrier') == [(7, native.OK)]


def test_segments_cannot_be_resized_or_sealed_by_a_client(guarded):
    """The daemon maps them: a shorter file would end it with SIGBUS."""
    daemon = guarded()
    with Client(daemon.socket) as client:
        client.send(hostile.hello(job=b'seals'))
        _, _, fds = client.receive()
        client.await_ready()
        client.send(hostile.segment_message(hostile.ALLOC_SEGMENT, size=1 << 20))
        _, _, more = client.receive()
        for fd in [fds[0], fds[2], *more]:
            for size in (0, 1 << 30):
                with pytest.raises(PermissionError):
                    os.ftruncate(fd, size)
            with pytest.raises(PermissionError):
                fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_WRITE)
            # Holes are allowed, and read as zeros.
            libc = native.ctypes.CDLL(None)
            assert libc.fallocate(fd, 3, native.ctypes.c_long(0), native.ctypes.c_long(4096)) == 0
        for fd in (*fds, *more):
            os.close(fd)
        client.send(hostile.plain(hostile.GOODBYE))


def _empty_the_doorbell(rank):
    """Makes the shared eventfd blocking and reads it before the daemon does."""
    client = Client(rank.socket).join(job=b'doorbell').await_ready()
    flags = fcntl.fcntl(client.doorbell, fcntl.F_GETFL)
    fcntl.fcntl(client.doorbell, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)
    rank.tell()
    while True:
        client.ring()
        os.read(client.doorbell, 8)


def test_a_client_that_empties_its_doorbell_first_blocks_nobody(guarded):
    """Once, the daemon read the doorbell and slept there when the client had been faster."""
    daemon = guarded()
    attacker = ranks.start(_empty_the_doorbell, socket=daemon.socket)
    attacker.hear()
    for number in range(30):
        assert ranks.run(daemon.socket, 2, _sum, job=f'{number}', seconds=5) == [True, True]
    attacker.close()


def _sum(rank):
    with rank.open() as session:
        buffer = session.alloc(100).fill(1)
        session.wait(session.submit(native.make_op(native.ALLREDUCE, 'x', buffer)))
        return buffer.holds(rank.size)


def test_a_full_doorbell_hurts_its_owner_only(guarded):
    daemon = guarded()
    with _member(daemon) as client:
        client.put(submission(op=3, request=5), ring=False)
        os.write(client.doorbell, struct.pack('=Q', (1 << 64) - 2))
        waiting.until(client.completions, 3, 'the barrier')
        with pytest.raises(BlockingIOError):
            client.ring()
        assert ranks.run(daemon.socket, 2, _sum, job='other') == [True, True]


def _scribble(rank, seed, what):
    """Joins again and again and writes random bytes wherever it can, until it is killed."""
    dice = random.Random(seed)
    rank.tell()
    number = 0
    while True:
        number += 1
        try:
            with Client(rank.socket) as client:
                _scribble_once(client, dice, what, b'%d of %d' % (number, rank.number))
        except (hostile.Refused, OSError):
            pass


def _scribble_once(client, dice, what, job):
    client.join(job=job).await_ready()
    _, memory = client.segment(_PAGE * 4)
    targets = {'control': client.control, 'board': client.board, 'segment': memory}
    for _ in range(dice.randrange(1, 60)):
        if what == 'slots':
            slots = submission(kind=dice.randrange(1, 8), op=dice.randrange(7),
                               dtype=dice.randrange(18), reduce_op=dice.randrange(6),
                               name=dice.randbytes(dice.choice((0, 3, 30, 200))),
                               shape=[dice.choice((0, 1, 5, 1 << 20)) for _ in
                                      range(dice.randrange(4))],
                               flags=dice.randrange(256), request=dice.randrange(20),
                               memory=(dice.randrange(3), 1, dice.randrange(0, 20000, 4), 0),
                               fetch=dice.randrange(20), root=dice.randrange(-2, 3),
                               direct=dice.randrange(1 << 32),
                               group=(dice.randrange(4), dice.randrange(3)))
            if dice.random() < 0.2:
                broken = bytearray(slots[0])
                broken[dice.randrange(128)] ^= 1 << dice.randrange(8)
                slots[0] = bytes(broken)
            if client.space() >= len(slots):
                client.put(slots, ring=dice.random() < 0.5)
        else:
            target = targets[dice.choice(list(targets))]
            at = dice.randrange(0, 700) if dice.random() < 0.5 else dice.randrange(len(target) - 64)
            target[at:at + 64] = dice.randbytes(64)
            client.ring()
        client.completions()


@pytest.mark.parametrize('what', ['slots', 'bytes'])
def test_random_writes_harm_nobody_else(guarded, dice, what):
    daemon = guarded()
    attackers = [ranks.start(_scribble, dice.randrange(1 << 32), what, number=number,
                             socket=daemon.socket) for number in range(2)]
    for attacker in attackers:
        attacker.hear()
    end = time.monotonic() + 4
    rounds = 0
    while time.monotonic() < end:
        assert ranks.run(daemon.socket, 2, _sum, job=f'honest {rounds}', seconds=10) == [True, True]
        rounds += 1
    for attacker in attackers:
        assert counters.state(attacker.pid) != 'Z', attacker.result()
        attacker.close()
    assert rounds > 5


def _scribble_on_a_board(rank, seed):
    """Two ranks of one job: one works by the direct path, the other writes over the board."""
    if rank.number == 0:
        session = rank.open()
        buffer = session.alloc(100)
        rank.tell()
        try:
            while True:
                session.allreduce('x', buffer)
        except native.Failure:
            return True
    dice = random.Random(seed)
    client = Client(rank.socket).join(job=rank.job.encode(), rank=1, size=2).await_ready()
    rank.tell()
    while True:
        at = dice.randrange(0, len(client.board) - 8)
        client.board[at:at + 8] = dice.randbytes(8)
        if client.space() > 0:
            client.put(submission(kind=hostile.WAIT_DIRECT, request=dice.randrange(9),
                                  direct=dice.randrange(1 << 32), name=b'y'))


def test_a_board_full_of_nonsense_harms_its_own_job_only(guarded, dice):
    """Ranks of one job trust each other: a wrong board may hang or fail them, not the daemon."""
    daemon = guarded()
    for number in range(3):
        with ranks.Group(daemon.socket, 2, _scribble_on_a_board, dice.randrange(1 << 32),
                         job=f'board {number}') as group:
            group.hear()
            time.sleep(0.3)  # The span in which it scribbles.
            for _ in range(5):
                assert ranks.run(daemon.socket, 2, _sum, job='honest', seconds=5) == [True, True]
            assert daemon.ctl('pending')[1] == 0
