# SPDX-License-Identifier: Apache-2.0
"""Starts ruedarun for the tests of it."""

import os
import subprocess
import sys
import time

# Ranks of these tests use no PyTorch, so that they start at once.
RUN = [sys.executable, '-m', 'rueda.run', '--private']


def run(*command, timeout=60, **options):
    return subprocess.run([*RUN, *command], timeout=timeout, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, **options)


def script(text):
    return [sys.executable, '-c', text]


def wait_for(condition, seconds=20):
    """Polls a condition on other processes, which cannot tell us."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, 'did not happen'
        time.sleep(0.02)


def alive(pid):
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii') as file:
            return file.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except OSError:
        return False
