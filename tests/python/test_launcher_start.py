# SPDX-License-Identifier: Apache-2.0
"""ruedarun: what it does before the first rank runs."""

import os
import signal
import subprocess
import sys
import time

import pytest

from launching import RUN, run, wait_for


def test_a_daemon_that_refuses_its_settings_ends_the_job_before_it_begins(tmp_path):
    # Ranks ran without a daemon, and those that called init() said "Connection refused" after 5 s.
    daemon = tmp_path / 'daemon'
    daemon.write_text('#!/bin/sh\nexec ruedad --workers 99 "$@"\n')
    daemon.chmod(0o755)
    result = run('-np', '1', 'touch', str(tmp_path / 'started'),
                 env={**os.environ, 'RUEDA_DAEMON': str(daemon)})
    assert result.returncode == 2 and not (tmp_path / 'started').exists()
    lines = result.stderr.splitlines()
    assert len(lines) == 2 and 'workers' in lines[0], lines
    assert lines[1] == 'ruedarun: the daemon ended: exit code 2'


PRINT = """
import os
for name in ('FUSION_THRESHOLD', 'CYCLE_TIME', 'STALL_CHECK_TIME_SECONDS',
             'STALL_SHUTDOWN_TIME_SECONDS', 'STALL_CHECK_DISABLE', 'TIMELINE',
             'TIMELINE_MARK_CYCLES'):
    values = {os.environ.get(prefix + name) for prefix in ('RUEDA_', 'HOROVOD_')}
    print(name, *values)
"""


def test_settings_of_the_job_reach_the_ranks_under_both_names():
    result = run('-np', '1', '--fusion-threshold-mb', '32', '--cycle-time-ms', '3.5',
                 '--stall-check-warning-time-seconds', '0', '--no-stall-check',
                 '--stall-check-shutdown-time-seconds', '60', '--timeline-filename', '/tmp/t.json',
                 '--timeline-mark-cycles', sys.executable, '-c', PRINT,
                 env={**os.environ, 'HOROVOD_CYCLE_TIME': '7'})
    assert result.stdout.splitlines() == [
        'FUSION_THRESHOLD 33554432', 'CYCLE_TIME 3.5', 'STALL_CHECK_TIME_SECONDS 0',
        'STALL_SHUTDOWN_TIME_SECONDS 60', 'STALL_CHECK_DISABLE 1', 'TIMELINE /tmp/t.json',
        'TIMELINE_MARK_CYCLES 1']
    result = run('-np', '1', sys.executable, '-c', PRINT)
    assert result.stdout.splitlines()[1] == 'CYCLE_TIME None'


def test_a_daemon_that_dies_at_its_start_is_named(tmp_path):
    result = run('-np', '2', 'touch', str(tmp_path / 'started'),
                 env={**os.environ, 'RUEDA_DAEMON': '/bin/false'})
    assert result.returncode == 126 and not (tmp_path / 'started').exists()
    assert result.stderr == 'ruedarun: the daemon ended: exit code 1\n'


def test_a_signal_while_the_daemon_starts_ends_the_job(tmp_path):
    daemon = tmp_path / 'daemon'
    daemon.write_text(f'#!/bin/sh\ntouch {tmp_path}/asked\nexec sleep 50\n')
    daemon.chmod(0o755)
    begin = time.monotonic()
    process = subprocess.Popen([*RUN, '-np', '1', 'touch', str(tmp_path / 'started')],
                               env={**os.environ, 'RUEDA_DAEMON': str(daemon)})
    wait_for((tmp_path / 'asked').exists)
    process.terminate()
    assert process.wait(20) == 128 + signal.SIGTERM and time.monotonic() - begin < 20
    assert not (tmp_path / 'started').exists()


def test_a_ctrl_c_while_ranks_start_is_one():
    # Ranks that had not yet left the launcher's group passed it on as a second one, which kills.
    for turn in range(8):
        process = subprocess.Popen([*RUN, '--verbose', '-np', '64', 'sleep', '50'], text=True,
                                   stderr=subprocess.PIPE, start_new_session=True)
        while f'rank {4 * turn} ' not in process.stderr.readline():
            pass
        os.killpg(process.pid, signal.SIGINT)
        error = process.communicate(timeout=20)[1]
        assert process.returncode == 128 + signal.SIGINT
        assert error.count('received SIGINT') == 1


CLOSED = '''
import os, sys
os.fstat(0), os.fstat(1), os.fstat(2)
sys.exit(os.read(0, 1) != b'' if os.environ['RUEDA_RANK'] == '0' else 0)
'''


@pytest.mark.parametrize('size', [1, 2])
@pytest.mark.parametrize('closed', ['<&-', '>&-', '2>&-', '>&- 2>&-', '<&- >&- 2>&-'])
@pytest.mark.parametrize('option', [[], ['--tag-output']])
def test_closed_standard_descriptors_are_as_good_as_the_null_device(size, closed, option):
    # Pipes of the launcher got their numbers: "[Errno 32] Broken pipe", or status 1 for no reason.
    command = [*RUN, '-np', str(size), *option, sys.executable, '-c', CLOSED]
    result = subprocess.run(['sh', '-c', f'"$@" {closed}', 'sh', *command], timeout=60, text=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    assert (result.returncode, result.stdout, result.stderr) == (0, '', '')


@pytest.mark.parametrize('option, value', [
    ('--grace-period', 'nan'), ('--grace-period', '-1'), ('--grace-period', 'inf'),
    ('--fusion-threshold-mb', 'inf'), ('--fusion-threshold-mb', '-1'), ('--cycle-time-ms', '-2'),
    ('--stall-check-warning-time-seconds', 'nan')])
def test_numbers_that_mean_nothing_are_refused(option, value):
    # With nan for the grace period a rank that ignored SIGTERM was never killed.
    result = run('-np', '1', option, value, 'true')
    assert result.returncode == 2 and f'{option}: {value} must' in result.stderr
    assert run('-np', '1', '--grace-period', '0', 'true').returncode == 0
