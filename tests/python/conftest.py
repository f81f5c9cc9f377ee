# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the Python tests. They use the installed package and start real processes."""

import os
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rank_pool import RankPool  # noqa: E402

_TEST_SECONDS = 90


def pytest_configure(config):
    config.addinivalue_line('markers', f'seconds(n): time limit of a test, else {_TEST_SECONDS}')
    config.addinivalue_line('markers', 'row(id, ...): rows of rows.py that a test proves')


@pytest.fixture(autouse=True)
def time_limit(request):
    """Fails a test that takes too long, whatever it waits for."""
    marker = request.node.get_closest_marker('seconds')
    seconds = marker.args[0] if marker else _TEST_SECONDS

    def expire(number, frame):
        raise TimeoutError(f'the test took more than {seconds} s')

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope='session')
def pools():
    """Running ranks by number of ranks."""
    made = {}
    yield made
    for pool in made.values():
        pool.close()


@pytest.fixture
def ranks(pools):
    """`ranks(n)` gives a RankPool of n ranks."""
    def get(size):
        if size not in pools:
            pools[size] = RankPool(size)
        return pools[size]
    return get


@pytest.fixture
def python(tmp_path):
    """Runs a script in a fresh interpreter: `python(text, *arguments, launch=[...])`.

    `launch`: arguments of ruedarun in front, or None for a lone process. Returns the finished
    subprocess with text output; raises subprocess.TimeoutExpired after `timeout` seconds.
    """
    def run(text, *arguments, launch=None, timeout=60, env=None):
        return subprocess.run(python_command(tmp_path, text, arguments, launch), timeout=timeout,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **(env or {})})
    return run


@pytest.fixture
def start_python(tmp_path):
    """As `python`, but returns the running Popen object. It is killed after the test."""
    started = []

    def start(text, *arguments, launch=None, env=None, **options):
        process = subprocess.Popen(python_command(tmp_path, text, arguments, launch),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, **(env or {})}, **options)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def python_command(folder, text, arguments, launch):
    """The command line for a script given as text."""
    script = folder / 'script.py'
    script.write_text(text)
    command = [sys.executable, str(script), *arguments]
    if launch is None:
        return command
    return [sys.executable, '-m', 'rueda.run', '--private', *launch, *command]
