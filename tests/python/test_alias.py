# SPDX-License-Identifier: Apache-2.0
"""rueda under the name horovod: `python -m rueda.as_horovod` and `ruedarun --as-horovod`."""

import os
import subprocess
import sys

import pytest

from launching import RUN

ALIAS = [sys.executable, '-m', 'rueda.as_horovod']


def run(*command, cwd=None, env=None, **options):
    return subprocess.run(list(map(str, command)), timeout=60, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, cwd=cwd,
                          env={**os.environ, **(env or {})}, **options)


def output(*command, **options):
    result = run(*command, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def script(tmp_path):
    """Writes a script into a folder of its own, where modules may be put beside it."""
    def write(text):
        (tmp_path / 'script.py').write_text(text)
        return tmp_path / 'script.py'
    return write


@pytest.fixture
def site(tmp_path):
    """A folder of modules with a Horovod that only looks genuine; returns its environment."""
    folder = tmp_path / 'site'
    (folder / 'horovod').mkdir(parents=True)
    (folder / 'horovod' / '__init__.py').write_text('genuine = True\n')
    info = folder / 'horovod-0.28.1.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: horovod\nVersion: 0.28.1\n')
    return {'PYTHONPATH': f'{os.environ["PYTHONPATH"]}:{folder}'}


TRAINING = '''
import horovod.torch as hvd
import torch
hvd.init()
model = torch.nn.Linear(2, 1)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                     named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
model(torch.full((1, 2), float(hvd.rank()))).sum().backward()
optimizer.step()
print(hvd.rank(), hvd.size(), hvd.allreduce(torch.ones(1), op=hvd.Sum).item())
'''


def test_a_script_for_horovod_trains_unchanged(script):
    path = script(TRAINING)
    lines = output(*RUN, '--as-horovod', '-np', '2', sys.executable, path).splitlines()
    assert sorted(lines) == ['0 2 2.0', '1 2 2.0']
    assert output(*RUN, '-np', '1', *ALIAS, path) == '0 1 1.0\n'


IDENTITY = '''
import importlib, importlib.util, pickle, sys
import horovod.torch as first
import rueda, rueda.torch as second
assert first is second and sys.modules['horovod.torch'] is sys.modules['rueda.torch']
import horovod
assert horovod is rueda and horovod.__version__ == rueda.__version__
from horovod import torch as third
from horovod.torch.elastic import TorchState
from horovod.torch.elastic.sampler import ElasticSampler
import horovod.common.exceptions
assert third is second and TorchState is second.elastic.TorchState
assert horovod.common.exceptions.HorovodInternalError is second.HorovodInternalError
for name in sys.argv[1:]:
    ours, theirs = importlib.import_module('rueda.' + name), importlib.import_module(
        'horovod.' + name)
    assert ours is theirs is sys.modules['horovod.' + name], name
    assert ours.__name__ == ours.__spec__.name == 'rueda.' + name, ours.__spec__
    assert importlib.util.find_spec('horovod.' + name) is not None
assert importlib.util.find_spec('horovod') is not None
state = pickle.loads(pickle.dumps(first.Compression.fp16))
assert state is second.Compression.fp16
# What a pickle made with Horovod says.
assert pickle.loads(b'chorovod.torch.compression\\nFP16Compressor\\n.') is state
import unittest.mock
with unittest.mock.patch('horovod.torch.mpi_ops.size', lambda: 7):
    assert second.mpi_ops.size() == 7
print('same')
'''
SUBMODULES = ['common', 'common.basics', 'common.elastic', 'common.exceptions', 'common.util',
              'exceptions', 'run', 'run.launcher', 'runner', 'runner.launch', 'torch',
              'torch.compression', 'torch.elastic', 'torch.elastic.sampler',
              'torch.elastic.state', 'torch.functions', 'torch.mpi_ops', 'torch.optimizer',
              'torch.sync_batch_norm']


@pytest.mark.row('alias')
def test_every_module_is_the_very_module_of_rueda(script):
    assert output(*ALIAS, script(IDENTITY), *SUBMODULES) == 'same\n'


def test_the_alias_may_be_imported_first_in_part(script):
    # In a fresh interpreter each of them is the first thing that is imported.
    for name in ('horovod.torch.mpi_ops', 'horovod.common.util', 'horovod.runner.launch'):
        text = f'import sys, {name}; print(sys.modules["{name}"].__name__)'
        assert output(*ALIAS, '-c', text) == name.replace('horovod', 'rueda') + '\n'


PROCESS = '''
import json, sys
print(json.dumps([__name__, sys.argv, sys.path[0], __spec__ and __spec__.name,
                  globals().get('__file__'), sys.flags.optimize]))
'''


@pytest.mark.parametrize('form', ['script', 'module', 'code', 'stdin', 'folder'])
def test_the_process_is_that_of_plain_python(tmp_path, script, form):
    path = script(PROCESS)
    (tmp_path / '__main__.py').write_text(PROCESS)
    command = {'script': [path, '-x', 'y'], 'module': ['-m', 'script', '-x'], 'stdin': ['-', 'a'],
               'code': ['-c', PROCESS, '-x'], 'folder': [tmp_path, 'y']}[form]
    plain, alias = [output(*start, *command, cwd=tmp_path, input=PROCESS)
                    for start in ([sys.executable, '-O'], [sys.executable, '-O', *ALIAS[1:]])]
    assert alias == plain


@pytest.mark.parametrize('text, status', [
    ('import sys; sys.exit(7)', 7), ('raise SystemExit("text")', 1), ('1 / 0', 1),
    ('import os, signal; os.kill(os.getpid(), signal.SIGTERM)', -15), ('', 0)])
def test_the_end_is_that_of_plain_python(script, text, status):
    path = script(text)
    plain, alias = run(sys.executable, path), run(*ALIAS, path)
    assert alias.returncode == plain.returncode == status
    assert alias.stderr == plain.stderr  # The traceback has no frame of ours.


CHILDREN = '''
import multiprocessing, subprocess, sys
def name(ignored=None):
    import horovod.torch
    return horovod.torch.__name__
if __name__ == '__main__':
    for method in ('spawn', 'fork', 'forkserver'):
        with multiprocessing.get_context(method).Pool(1) as pool:
            assert pool.map(name, [None]) == ['rueda.torch'], method
    print(subprocess.run([sys.executable, '-c', 'import horovod; print(horovod.__name__)'],
                         check=True, capture_output=True, text=True).stdout, end='')
'''


@pytest.mark.row('alias')
def test_children_inherit_it(script):
    assert output(*ALIAS, script(CHILDREN)) == 'rueda\n'
    path = script(CHILDREN)
    assert output(*RUN, '--as-horovod', '-np', '1', sys.executable, path) == 'rueda\n'


@pytest.mark.row('alias')
def test_modules_of_horovod_can_be_run():
    for start in ([*ALIAS], [*RUN, '-np', '1', '--as-horovod', sys.executable]):
        text = output(*start, '-m', 'horovod.runner.launch', '-np', '1', '--private',
                      sys.executable, '-c', 'import horovod; print(horovod.__name__)')
        assert text == 'rueda\n'
    result = run(*ALIAS, '-W', 'error', '-m', 'horovod.run', '--version')
    assert (result.returncode, result.stderr) == (0, '') and result.stdout[0].isdigit()


def test_modules_that_rueda_lacks_are_named():
    for name in ('horovod.tensorflow', 'horovod.tensorflow.keras', 'horovod.torch.nonsense'):
        missing = name.replace('.keras', '')
        result = run(*ALIAS, '-c', f'import {name}')
        assert result.returncode == 1
        assert result.stderr.splitlines()[-1].startswith(
            f"ModuleNotFoundError: No module named '{missing}': rueda "), result.stderr
        assert missing.replace('horovod', 'rueda') in result.stderr.splitlines()[-1]
    text = 'try:\n import horovod.mxnet\nexcept ImportError as error: print(error.name)'
    assert output(*ALIAS, '-c', text) == 'horovod.mxnet\n'


def test_it_is_never_on_by_itself():
    text = 'import rueda.torch, importlib.util; print(importlib.util.find_spec("horovod"))'
    for start in ([sys.executable], [*RUN, '-np', '1', sys.executable]):
        assert output(*start, '-c', text) == 'None\n'


def test_a_genuine_horovod_is_not_replaced_unless_forced(script, site, tmp_path):
    path = script('import horovod; print(horovod.__name__, hasattr(horovod, "genuine"))')
    assert output(sys.executable, path, env=site) == 'horovod True\n'
    for start in (ALIAS, [*RUN, '-np', '2', '--as-horovod', sys.executable]):
        result = run(*start, path, env=site)
        assert (result.returncode, result.stdout) == (2, '')
        assert result.stderr.count('\n') == 1
        assert f'Horovod 0.28.1 is installed at {tmp_path}/site/horovod' in result.stderr
    force = {**site, 'RUEDA_AS_HOROVOD_FORCE': '1'}
    assert output(*ALIAS, '--force', path, env=site) == 'rueda False\n'
    assert output(*ALIAS, path, env=force) == 'rueda False\n'
    for options, env in (([], force), (['--env', 'RUEDA_AS_HOROVOD_FORCE=1'], site)):
        assert output(*RUN, '-np', '1', *options, '--as-horovod', sys.executable, path,
                      env=env) == 'rueda False\n'


def test_a_horovod_of_the_rank_s_own_interpreter_is_not_replaced(script, site):
    # The launcher does not see it: the ranks have another sys.path.
    text = f'import sys; sys.path.append({site["PYTHONPATH"].rpartition(":")[2]!r})\n'
    path = script(text + 'try:\n import horovod\nexcept ImportError: print("alone")')
    result = run(*RUN, '-np', '1', '--as-horovod', sys.executable, path)
    assert (result.returncode, result.stdout) == (1, '')
    assert 'GenuineHorovodError: Horovod 0.28.1 is installed at ' in result.stderr


def test_a_horovod_without_metadata_is_found_too(script, site, tmp_path):
    (tmp_path / 'site' / 'horovod-0.28.1.dist-info' / 'METADATA').unlink()
    (tmp_path / 'site' / 'horovod-0.28.1.dist-info').rmdir()
    result = run(*ALIAS, script(''), env=site)
    assert result.returncode == 2
    assert f'Horovod of unknown version is installed at {tmp_path}/site/horovod' in result.stderr


def test_a_horovod_beside_the_script_is_refused_even_when_forced(script, tmp_path):
    # Python looks there first: the script would run with that one.
    path = script('import horovod')
    (tmp_path / 'horovod').mkdir()
    assert run(*ALIAS, path).returncode == 0  # A folder, e.g. of checkpoints.
    (tmp_path / 'horovod' / '__init__.py').write_text('')
    for command in ([path], ['-m', 'script'], ['-c', ''], ['-u', '-W', 'default', path]):
        for force in ([], ['--force']):
            result = run(*ALIAS, *force, *command, cwd=tmp_path)
            assert result.returncode == 2 and f'{tmp_path}/horovod' in result.stderr
        result = run(*RUN, '-np', '1', '--as-horovod', sys.executable, *command, cwd=tmp_path)
        assert result.returncode == 2 and f'{tmp_path}/horovod' in result.stderr
    assert run(*ALIAS, '-c', 'import horovod', cwd='/').returncode == 0


def test_an_interpreter_that_ignores_its_environment_is_refused():
    result = run(sys.executable, '-E', '-c', 'import sys; sys.path += ['
                 f'{os.environ["PYTHONPATH"]!r}]; from rueda import as_horovod;'
                 'sys.exit(as_horovod.main(["-c", ""]))')
    assert result.returncode == 2 and 'ignores its environment' in result.stderr
