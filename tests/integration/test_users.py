# SPDX-License-Identifier: Apache-2.0
"""Users of one daemon are kept apart by what the kernel says they are. Only root can test that."""

import os
import shutil
import stat
import tempfile

import pytest

from kit import counters, hostile, native, programs, ranks, waiting
from kit.daemon import Daemon
from kit.neighbour import Neighbour

_A, _B = 1001, 1002

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='only root can become other users')


@pytest.fixture
def open_folder():
    """A folder that every user may enter."""
    folder = tempfile.mkdtemp(prefix='rueda-test-open-')
    os.chmod(folder, 0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def loaded():
    """The library is loaded before ranks become other users, who may not reach the file."""
    native.library()


@pytest.fixture
def system_daemon(open_folder):
    """A daemon as a system has it: a path, open to all."""
    with Daemon(socket=os.path.join(open_folder, 'rueda.sock')) as daemon:
        yield daemon
        assert daemon.is_alive()


def _sum_when_told(rank):
    """Opens and sums; returns the user and whether the sum is right."""
    with rank.open() as session:
        rank.tell()
        rank.hear()
        for number in range(50):
            buffer = session.alloc(5000).fill(rank.number + os.geteuid())
            session.allreduce('x', buffer)
            session.wait(session.submit(native.make_op(native.ALLREDUCE, 'y', buffer)))
            right = buffer.holds(rank.size * (rank.size * os.geteuid() + 1))
            assert right, number
            session.free(buffer)
        return os.geteuid()


def test_jobs_of_one_name_and_two_users_do_not_meet(system_daemon):
    with ranks.Group(system_daemon.socket, 2, _sum_when_told, job='same', uid=_A) as a, \
            ranks.Group(system_daemon.socket, 2, _sum_when_told, job='same', uid=_B) as b:
        a.hear()
        b.hear()
        jobs, _ = system_daemon.ctl('jobs')
        assert sorted((job['id'], job['uid'], job['size']) for job in jobs['jobs']) == \
            [('same', _A, 2), ('same', _B, 2)]
        a.tell()
        b.tell()
        assert a.results() == [_A, _A] and b.results() == [_B, _B]


def _try(rank, start_ms):
    return native.failure_of(rank.open, start_ms=start_ms)


def test_another_user_cannot_take_a_place_in_a_job(system_daemon):
    """Neither a free place of a job that forms, nor one that is taken."""
    with ranks.Group(system_daemon.socket, 2, _sum_when_told, job='same', uid=_A,
                     numbers=[0]) as half:
        stranger = ranks.start(_try, 600, number=1, size=2, job='same', uid=_B,
                               socket=system_daemon.socket)
        code, text = stranger.result()
        stranger.close()
        assert code == native.DEADLINE_EXCEEDED and 'ranks [0]' in text, text
        with ranks.Group(system_daemon.socket, 2, _sum_when_told, job='same', uid=_A,
                         numbers=[1]) as rest:
            half.hear()
            rest.hear()
            stranger = ranks.start(_try, 600, number=1, size=2, job='same', uid=_B,
                                   socket=system_daemon.socket)
            code, text = stranger.result()
            stranger.close()
            assert code == native.DEADLINE_EXCEEDED, text
            half.tell()
            rest.tell()
            assert half.results() + rest.results() == [_A, _A]


def test_a_private_daemon_refuses_other_users_and_root_may_look(open_folder):
    program = programs.reachable_copy(programs.daemon(), open_folder)
    with Daemon(private=True, uid=_A, program=program) as daemon:
        own = ranks.Group(daemon.socket, 2, _sum_when_told, uid=_A)
        own.hear()
        stranger = ranks.start(_try, 600, number=0, size=1, job='other', uid=_B,
                               socket=daemon.socket)
        code, text = stranger.result()
        stranger.close()
        assert code == native.PERMISSION_DENIED
        assert f'uid {_A}' in text and str(_B) in text, text
        tool = programs.reachable_copy(programs.ctl(), open_folder)
        looked = ranks.start(_ask_status, tool, uid=_B, socket=daemon.socket)
        assert looked.result() != 0, 'another user reads the state of a private daemon'
        looked.close()
        assert daemon.ctl('status')[0]['jobs'][0]['uid'] == _A
        own.tell()
        assert own.results() == [_A, _A]
        own.close()
        assert daemon.wait(5) == 0


def _ask_status(rank, tool):
    """Exit code of ruedactl for this user; 0 would mean that it may look."""
    os.environ['RUEDACTL'] = tool
    return programs.run_ctl('status', '--json', '--socket', rank.socket).returncode


def test_a_private_daemon_of_a_user_tells_how_a_rank_died(open_folder):
    """The kernel hides some of /proc from a daemon that is not root."""
    program = programs.reachable_copy(programs.daemon(), open_folder)
    with Daemon(private=True, uid=_A, program=program) as daemon:
        with ranks.Group(daemon.socket, 2, _wait_for_ever, uid=_A) as group:
            group.hear()
            group[1].kill()
            code, text = group[0].result()
            assert code == native.RANK_LOST and 'killed by signal 9' in text, text
    with Daemon(private=True, uid=_A, program=program) as daemon:
        with ranks.Group(daemon.socket, 2, _wait_for_ever, True, uid=_A) as group:
            group.hear()
            group[1].kill(reap=False)
            code, text = group[0].result()
            # The kernel shows no status of such a process; once it was taken for an exit with 0.
            assert code == native.RANK_LOST and 'code 0' not in text, text


def _wait_for_ever(rank, is_hidden=False):
    if is_hidden:
        native.ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
    session = rank.open()
    buffer = session.alloc(10)
    rank.tell()
    return native.failure_of(session.allreduce, f'of {rank.number}', buffer)


def test_sockets_have_their_modes(open_folder, system_daemon):
    def mode(name):
        info = os.stat(os.path.join(open_folder, name))
        assert stat.S_ISSOCK(info.st_mode)
        return stat.S_IMODE(info.st_mode)

    assert mode('rueda.sock') == 0o666
    private_folder = os.path.join(open_folder, 'private')
    os.mkdir(private_folder)
    with Daemon(socket=os.path.join(private_folder, 'rueda.sock'), private=True):
        assert mode('private/rueda.sock') == 0o600


def test_no_abstract_socket_beside_a_path(system_daemon):
    token = os.path.basename(os.path.dirname(system_daemon.socket))
    assert counters.abstract_sockets(token) == []


def _many_clients(rank):
    """Takes more sessions than it may; each holds its place in a job that never fills."""
    held = [hostile.Client(rank.socket).join(rank=number, size=8) for number in range(4)]
    failure = native.failure_of(native.Session, rank.socket, 'job', 4, 8)
    return failure, len(held)


def _many_jobs(rank):
    held = [native.Session(rank.socket, f'job {number}') for number in range(2)]
    return native.failure_of(native.Session, rank.socket, 'one more'), len(held)


def _many_bytes(rank):
    with rank.open() as session:
        held = [session.alloc(30 << 20, 'uint8')]
        return native.failure_of(session.alloc, 40 << 20, 'uint8'), len(held)


@pytest.mark.parametrize('take, named', [
    (_many_clients, 'clients of uid 1002: holds 4, asks for 1, limit 4'),
    (_many_jobs, 'jobs of uid 1002: holds 2, asks for 1, limit 2'),
    (_many_bytes, 'bytes of shared memory of uid 1002: holds'),
])
def test_a_quota_of_one_user_is_not_taken_from_another(open_folder, take, named):
    address = os.path.join(open_folder, 'rueda.sock')
    with Daemon('--max-sessions-per-uid', '4', '--max-jobs-per-uid', '2', '--max-bytes-per-uid',
                str(64 << 20), socket=address) as daemon:
        before = daemon.settled_holdings()
        with Neighbour(daemon.socket, uid=_A) as neighbour:
            greedy = ranks.start(take, uid=_B, socket=address)
            (code, text), _ = greedy.result()
            greedy.close()
            assert code == native.RESOURCE_EXHAUSTED and named in text, text
            # What it held is free again.
            waiting.until(lambda: len(daemon.ctl('jobs')[0]['jobs']) == 1, 5, 'its jobs are gone')
            again = ranks.start(take, uid=_B, socket=address)
            assert again.result()[0] == (code, text)
            again.close()
            assert neighbour.stop()[0] > 0
        counters.await_holdings(daemon.pid, before)


def _many_segments(rank):
    """One page a segment, in as many jobs as it may have, until it is refused."""
    held = []
    while True:
        client = hostile.Client(rank.socket).join(job=b'pages %d' % len(held)).await_ready()
        held.append(client)
        try:
            while True:
                client.segment(4096)
        except hostile.Refused as refused:
            if 'limit of 1024 segments' not in refused.args[1]:
                rank.tell(refused.args)
                rank.hear()
                return


def test_segments_of_one_user_leave_room_for_those_of_another(system_daemon):
    """The kernel limits the mappings of a process, so their number is limited, not only bytes."""
    greedy = ranks.start(_many_segments, uid=_B, socket=system_daemon.socket)
    code, text = greedy.hear(40)
    assert code == native.RESOURCE_EXHAUSTED and 'segments of uid 1002: holds 8192' in text, text
    with Neighbour(system_daemon.socket, uid=_A) as neighbour:
        assert neighbour.stop()[0] > 0
    greedy.close()
    waiting.until(lambda: counters.holdings(system_daemon.pid).mappings == 0, 10, 'all is unmapped')
