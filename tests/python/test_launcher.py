# SPDX-License-Identifier: Apache-2.0
"""ruedarun: what ranks get, and how failures and signals are handled."""

import os
import signal
import socket
import subprocess
import tempfile
import time

import pytest

from launching import RUN, alive, run, script, wait_for
from rueda.run import arguments, environment, failure, hosts, output, supervisor

SHOW = '''
import os
names = ['RANK', 'SIZE', 'LOCAL_RANK', 'LOCAL_SIZE', 'CROSS_RANK', 'CROSS_SIZE', 'HOSTNAME']
one = [os.environ['RUEDA_' + name] for name in names]
assert one == [os.environ['HOROVOD_' + name] for name in names]
os.write(1, (' '.join(one + [os.environ['RUEDA_JOB'], os.environ['RUEDA_SOCKET'],
    os.environ['HOROVOD_CONTROLLER'], os.environ['PYTHONUNBUFFERED'],
    os.environ.get('COLOUR', '-'), os.environ.get('INHERITED', '-')]) + chr(10)).encode())
'''


def test_the_environment_of_ranks():
    result = run('-np', '3', '--env', 'COLOUR=blue=green', '--env', 'INHERITED', *script(SHOW),
                 env={**os.environ, 'INHERITED': 'yes'})
    assert result.returncode == 0 and result.stderr == ''
    lines = sorted(line.split() for line in result.stdout.splitlines())
    for rank, line in enumerate(lines):
        assert line[:7] == [str(rank), '3', str(rank), '3', '0', '1', 'localhost']
        assert line[7:9] == lines[0][7:9] and line[7] and line[8].startswith('@rueda-')
        assert line[9:] == ['gloo', '1', 'blue=green', 'yes']
    again = run('-np', '1', *script(SHOW))
    assert again.stdout.split()[7] != lines[0][7], 'job names must be unique'


def test_exit_status_and_name_of_the_first_failure():
    text = 'import os, signal, sys, time\nrank = os.environ["RUEDA_RANK"]\n{}\nsignal.pause()'
    result = run('-np', '3', *script(text.format('if rank == "1": sys.exit(3)')))
    assert result.returncode == 3
    assert 'rank 1' in result.stderr and 'exit code 3' in result.stderr
    assert '; ending 2 more' in result.stderr
    result = run('-np', '2', *script(text.format(
        'if rank == "0": os.kill(os.getpid(), signal.SIGSEGV)')))
    assert result.returncode == 128 + signal.SIGSEGV
    assert 'rank 0' in result.stderr and 'SIGSEGV' in result.stderr
    result = run('-np', '2', *script(text.format(
        'if rank == "0": os.kill(os.getpid(), signal.SIGKILL)')))
    assert result.returncode == 128 + signal.SIGKILL and 'memory' in result.stderr


LAST_WORDS = '''
import os, sys, time
if os.environ['RUEDA_RANK'] == '1':
    with open(sys.argv[1], 'w') as file: file.write(str(os.getpid()))
    sys.exit(3)
def lost():
    try:
        with open(sys.argv[1]) as file: return not os.path.exists('/proc/' + file.read())
    except OSError: return False
while not lost(): time.sleep(0.001)
time.sleep(0.1)
os.write(2, b'rank 1 was lost' + bytes([10]))
sys.exit(4)
'''


def test_the_other_ranks_may_say_what_they_saw(tmp_path):
    # They got SIGTERM at once: a traceback that names the lost rank seldom came out.
    result = run('-np', '3', *script(LAST_WORDS), str(tmp_path / 'pid'))
    assert result.stderr.splitlines().count('rank 1 was lost') == 2, result.stderr
    assert result.returncode == 3 and result.stderr.count('failed first') == 1
    assert 'rank 1 (pid' in result.stderr and 'exit code 3' in result.stderr


def test_a_rank_that_ignores_sigterm_is_killed_after_the_grace_period():
    text = '''
import os, signal, sys
if os.environ['RUEDA_RANK'] == '1':
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print('ready')
    while True: signal.pause()
while os.path.getsize(sys.argv[1]) == 0: pass
sys.exit(4)
'''
    begin = time.monotonic()
    with tempfile.NamedTemporaryFile() as file:
        result = subprocess.run([*RUN, '-np', '2', '--grace-period', '0.5', *script(text),
                                 file.name], stdout=file, timeout=30)
    assert result.returncode == 4 and time.monotonic() - begin < 15


def test_children_of_ranks_end_with_the_job():
    text = '''
import os, signal, subprocess, sys
child = subprocess.Popen(['sleep', '1000'])
os.write(1, (str(child.pid) + chr(10)).encode())
if os.environ['RUEDA_RANK'] == '0': sys.exit(2)
signal.pause()
'''
    result = run('-np', '2', *script(text))
    assert result.returncode == 2
    children = [int(line) for line in result.stdout.split()]
    assert children
    wait_for(lambda: not any(map(alive, children)))
    text = text.replace('signal.pause()', '').replace('exit(2)', 'exit(0)')
    result = run('-np', '2', *script(text))
    assert result.returncode == 0 and len(result.stdout.split()) == 2
    wait_for(lambda: not any(map(alive, map(int, result.stdout.split()))))


@pytest.fixture
def running():
    """Starts ruedarun in the background and waits for a line of each rank."""
    started = []

    def start(size, text, *options):
        process = subprocess.Popen([*RUN, '-np', str(size), *options, *script(text)], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        started.append(process)
        return process, [process.stdout.readline() for _ in range(size)]

    yield start
    for process in started:
        process.kill()
        process.communicate()


ANNOUNCE = '''
import os, signal, subprocess, sys
def handle(number, frame):
    os.write(1, ('got %d\\n' % number).encode())
    if number in (signal.SIGINT, signal.SIGTERM): sys.exit(0)
for number in HANDLED: signal.signal(getattr(signal, number), handle)
child = subprocess.Popen(['sleep', '1000'])
os.write(1, ('%d %d\\n' % (os.getpid(), child.pid)).encode())
while True: signal.pause()
'''


def test_nothing_outlives_a_killed_launcher(running):
    process, lines = running(2, ANNOUNCE.replace('HANDLED', '["SIGTERM"]'), '--verbose')
    pids = [int(word) for line in lines for word in line.split()]
    assert len(pids) == 4 and all(map(alive, pids))
    process.kill()
    wait_for(lambda: not any(map(alive, pids)))


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_an_ending_signal_reaches_the_ranks_and_sets_the_status(running, number):
    process, lines = running(2, ANNOUNCE.replace('HANDLED', '["SIGINT", "SIGTERM"]'))
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert out.splitlines() == [f'got {int(number)}'] * 2
    assert 'failed first' not in err
    pids = [int(word) for line in lines for word in line.split()]
    wait_for(lambda: not any(map(alive, pids)))


def test_user_signals_reach_ranks_but_not_their_children(running):
    process, lines = running(2, ANNOUNCE.replace('HANDLED', '["SIGUSR1", "SIGUSR2", "SIGHUP"]'))
    children = [int(line.split()[1]) for line in lines]
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        process.send_signal(number)
        assert [process.stdout.readline() for _ in range(2)] == [f'got {int(number)}\n'] * 2
        assert all(map(alive, children))
    process.send_signal(signal.SIGHUP)
    assert [process.stdout.readline() for _ in range(2)] == [f'got {int(signal.SIGHUP)}\n'] * 2
    assert process.poll() is None
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_second_ctrl_c_does_not_wait_for_the_grace_period(running):
    text = ANNOUNCE.replace('sys.exit(0)', 'pass').replace('HANDLED', '["SIGINT"]')
    process, _ = running(1, text, '--grace-period', '100')
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == 'got 2\n'
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGINT


def test_the_first_rank_reads_what_is_piped_in():
    text = 'import os, sys; os.write(1, sys.stdin.read().encode())'
    assert run('-np', '2', *script(text), input='hello').stdout == 'hello'


def test_wrong_command_lines():
    for command in ([], ['-np', '0', 'true'], ['-np', 'two', 'true'], ['-np', '2'], ['true'],
                    ['-np', '2', '-H', 'localhost', 'true'], ['-np', '2', '--nonsense', 'true'],
                    ['-np', '3', '-H', 'localhost:2', 'true'],
                    ['-np', '2', '-hostfile', '/does/not/exist', 'true']):
        result = run(*command)
        assert result.returncode == 2 and 'ruedarun' in result.stderr, command
    result = run('-np', '2', '-H', 'localhost:1,192.0.2.7:1', 'true')
    assert result.returncode == 2
    assert '192.0.2.7' in result.stderr and 'this host only' in result.stderr
    result = run('-np', '1', '/does/not/exist')
    assert result.returncode == 127 and '/does/not/exist' in result.stderr
    result = run('-np', '1', 'true', env={**os.environ, 'RUEDA_DAEMON': '/does/not/exist'})
    assert result.returncode == 126 and '/does/not/exist' in result.stderr


def test_more_ranks_than_a_daemon_takes_are_refused_before_any_starts(tmp_path):
    # Ranks were started without end, and SIGTERM was heard after the last one only.
    hostfile = tmp_path / 'hosts'
    hostfile.write_text('localhost slots=1000\n')
    for options in (['-np', '65'], ['-np', '9' * 20], ['-H', 'localhost:65'],
                    ['-hostfile', str(hostfile)]):
        result = run(*options, 'touch', str(tmp_path / 'started'), timeout=20)
        assert result.returncode == 2 and 'at most 64' in result.stderr, options
        assert not (tmp_path / 'started').exists()
    assert hosts.resolve(arguments.parse(['-np', '64', '-H', 'localhost:1000', 'true']))[1] == 64


def test_a_signal_between_the_starts_of_ranks_ends_the_job(tmp_path):
    # It was heard only when all had been started.
    text = '[ $RUEDA_RANK != 0 ] || kill -TERM $PPID; exec sleep 50'
    begin = time.monotonic()
    result = run('-np', '64', '--grace-period', '60', 'sh', '-c', text, timeout=40)
    assert result.returncode == 128 + signal.SIGTERM, result.stderr
    assert time.monotonic() - begin < 20
    signals = supervisor.Signals()
    try:
        watcher = supervisor.Supervisor(signals, None, None, 5.0,
                                        output.Outlet(2, 'stderr'), False)
        assert watcher.goes_on()
        os.kill(os.getpid(), signal.SIGTERM)
        assert not watcher.goes_on()
        assert watcher.run() == 128 + signal.SIGTERM
    finally:
        signals.close()


def test_options_of_horovodrun_are_accepted():
    options = ['--gloo', '--cycle-time-ms', '3.5', '--autotune', '--autotune-log-file', 'x',
               '--no-hierarchical-allreduce', '--blacklist-cooldown-range', '1', '2',
               '--network-interfaces', 'lo', '-p', '22', '--disable-cache', '--num-nccl-streams',
               '2', '--timeline-filename', '/nowhere', '--mpi-args=-x', '--fusion-threshold-mb',
               '32', '--stall-check-warning-time-seconds', '30',
               '--stall-check-shutdown-time-seconds', '60', '--log-level', 'error']
    result = run('-np', '1', *options, '--', 'true')
    assert result.returncode == 0, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and 'INFO' in lines[0] and '--autotune' in lines[0]
    assert '--cycle-time-ms' not in lines[0]
    assert '--log-level' not in lines[0]


def test_version_and_check_build():
    import rueda
    for flag in ('-v', '--version'):
        assert run(flag).stdout == rueda.__version__ + '\n'
    for flag in ('-cb', '--check-build'):
        assert '[X] PyTorch' in run(flag).stdout


def test_the_daemon_of_a_job_ends_with_it():
    result = run('-np', '1', '--verbose', *script(
        'import os; os.write(1, os.environ["RUEDA_SOCKET"].encode())'))
    assert result.stdout.startswith('@')
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        with pytest.raises(OSError):
            probe.connect('\0' + result.stdout[1:])


def test_host_formats(tmp_path):
    assert hosts.parse_hosts('localhost:2,b-1.x_y:10') == [('localhost', 2), ('b-1.x_y', 10)]
    for wrong in ('localhost', 'a:b', ':2', 'a:2,', 'a b:2', '::1:2'):
        with pytest.raises(ValueError, match='Invalid host input'):
            hosts.parse_hosts(wrong)
    assert hosts.parse_hostfile('# all\nlocalhost slots=2\n\nother slots=3 # x\n') == [
        ('localhost', 2), ('other', 3)]
    for wrong in ('localhost', 'localhost 2', 'a slots=x', ''):
        with pytest.raises(ValueError):
            hosts.parse_hostfile(wrong)
    for local in ('localhost', '127.0.0.1', socket.gethostname()):
        assert hosts.is_local(local)
    assert not hosts.is_local('192.0.2.7')
    file = tmp_path / 'hosts'
    file.write_text('127.0.0.1 slots=3\n')
    for options, wanted in ((['-np', '2'], ('localhost', 2)),
                            (['-H', 'localhost:4'], ('localhost', 4)),
                            (['-np', '2', '-hostfile', str(file)], ('127.0.0.1', 2))):
        assert hosts.resolve(arguments.parse([*options, 'true'])) == wanted


def test_the_command_begins_at_the_first_other_word():
    options = arguments.parse(['-np', '2', 'python', 'train.py', '--epochs', '3', '-np', '9'])
    assert options.num_proc == 2
    assert options.command == ['python', 'train.py', '--epochs', '3', '-np', '9']


def test_how_an_end_is_described():
    assert failure.describe(3, 0) == 'exit code 3'
    assert failure.exit_code(3) == 3 and failure.exit_code(-9) == 137
    assert 'SIGTERM' in failure.describe(-15, 0)
    assert 'lack of memory' in failure.describe(-9, 1) and '1 process' in failure.describe(-9, 1)
    assert 'no lack of memory' in failure.describe(-9, 0)


def test_memory_kills_are_counted_from_the_start_of_the_job(tmp_path):
    vmstat, cgroup, root = tmp_path / 'vmstat', tmp_path / 'cgroup', tmp_path / 'root'
    events = root / 'job' / 'memory.events'
    events.parent.mkdir(parents=True)
    vmstat.write_text('nr_free_pages 5\noom_kill 7\n')
    cgroup.write_text('0::/job\n')
    events.write_text('low 0\noom 2\noom_kill 1\n')
    counter = failure.OomCounter(str(vmstat), str(cgroup), str(root))
    assert counter.kills() == 0
    events.write_text('low 0\noom 2\noom_kill 3\n')
    assert counter.kills() == 2
    vmstat.write_text('oom_kill 10\n')
    assert counter.kills() == 3
    assert failure.OomCounter('/does/not/exist', '/does/not/exist').kills() == 0


def test_settings_of_env():
    assert environment.with_settings({'A': '1', 'B': '2'}, ['A=x=y', 'B', 'C=']) == {
        'A': 'x=y', 'B': '2', 'C': ''}
