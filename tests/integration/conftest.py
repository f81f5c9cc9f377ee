# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the integration tests: real daemons, real processes, and a hard limit on each test.

Run by `tests/run --suite integration`, or by `python3 -m pytest tests/integration` with
RUEDA_DAEMON, RUEDA_LIBRARY and RUEDACTL set. `--long` (or RUEDA_TEST_LONG=1) adds what takes
minutes; `--seed N` repeats the random choices of a run.
"""

import os
import random
import signal
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from kit.daemon import Daemon  # noqa: E402
from kit.guard import Guard  # noqa: E402

_TEST_SECONDS = 60


def pytest_addoption(parser):
    parser.addoption('--long', action='store_true', help='also the tests that take minutes')
    parser.addoption('--seed', type=int, default=None, help='seed of random choices')


def pytest_configure(config):
    config.addinivalue_line('markers', f'seconds(n): time limit of a test, else {_TEST_SECONDS}')
    config.addinivalue_line('markers', 'long: takes minutes; only with --long')
    config.measured = []


def pytest_collection_modifyitems(config, items):
    wanted = config.getoption('--long') or os.environ.get('RUEDA_TEST_LONG') == '1' or \
        'long' in (config.option.markexpr or '')
    for item in items:
        if not wanted and item.get_closest_marker('long'):
            item.add_marker(pytest.mark.skip(reason='takes minutes: --long'))


def pytest_terminal_summary(terminalreporter, config):
    if config.measured:
        terminalreporter.section('measured')
        for line in config.measured:
            terminalreporter.write_line(line)


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


@pytest.fixture
def measured(request):
    """`measured(text)` puts a figure into the summary at the end of the run."""
    def note(text):
        request.config.measured.append(f'{request.node.name}: {text}')
    return note


@pytest.fixture
def dice(request):
    """A random.Random whose seed is printed when the test fails, and taken from --seed."""
    seed = request.config.getoption('--seed')
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
    print(f'--seed {seed}')
    return random.Random(seed)


@pytest.fixture
def daemons():
    """`daemons(*flags, **options)` starts a Daemon that is stopped after the test."""
    started = []

    def start(*arguments, **options):
        started.append(Daemon(*arguments, **options))
        return started[-1]

    yield start
    for daemon in started:
        daemon.stop()


@pytest.fixture
def daemon(daemons):
    """A daemon as a system runs it, on an abstract socket; it must survive the test."""
    started = daemons()
    yield started
    assert started.is_alive(), f'ruedad ended with {started.process.returncode}: {started.log()}'


@pytest.fixture
def guarded(daemons):
    """`guarded(*flags)` starts a daemon that the test may attack; see kit/guard.py."""
    guard = Guard(daemons)
    yield guard
    guard.check()
