# SPDX-License-Identifier: Apache-2.0
"""rueda.run(): a function in every rank of a new job."""

import atexit
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import pytest

import rueda
import rueda.run
from launching import alive, wait_for
from rueda import runner
from rueda.runner import launch

# The tests call what scripts call; the ranks import this module for its functions.


def place(*args, **kwargs):
    """What a rank sees of itself, without PyTorch."""
    rueda.init()
    return [rueda.rank(), rueda.size(), args, kwargs]


@pytest.mark.row('L60')
def test_results_come_in_rank_order():
    assert rueda.run(place, ('a', 2), {'key': [1]}, num_proc=3) == [
        [rank, 3, ('a', 2), {'key': [1]}] for rank in range(3)]
    assert rueda.run(place) == [[0, 1, (), {}]]
    assert rueda.run(place, num_proc=2, hosts='localhost:2')[1][:2] == [1, 2]


def summed(value):
    import torch

    import rueda.torch as hvd
    hvd.init()
    return hvd.allreduce(torch.tensor([value * (hvd.rank() + 1)]), op=hvd.Sum)


def test_ranks_compute_together_and_results_may_be_tensors():
    first, second = rueda.run(summed, args=(2.0,), num_proc=2)
    assert first.tolist() == second.tolist() == [6.0]


@pytest.mark.row('L60')
def test_the_package_is_a_function_and_still_a_package():
    assert callable(rueda.run) and rueda.run is sys.modules['rueda.run']
    assert runner.run is rueda.run.run and launch.run_commandline is rueda.run.launcher.main
    from rueda import run
    assert run is rueda.run
    names = list(inspect.signature(rueda.run).parameters)
    assert names == ['func', 'args', 'kwargs', 'num_proc', 'min_num_proc', 'max_num_proc', 'slots',
                     'reset_limit', 'cooldown_range', 'hosts', 'hostfile', 'host_discovery_script',
                     'start_timeout', 'ssh_port', 'ssh_identity_file', 'disable_cache',
                     'output_filename', 'verbose', 'use_gloo', 'use_mpi', 'mpi_args',
                     'network_interface', 'network_interfaces', 'executable', 'np', 'min_np',
                     'max_np', 'env']
    assert 'num_proc' in rueda.run.run.__doc__


def test_importing_rueda_does_not_load_the_launcher(python):
    result = python('import sys, rueda.torch\n'
                    'print([name for name in sys.modules if name.startswith("rueda.run")])\n'
                    'print(callable(rueda.run), hasattr(rueda, "runn"))')
    assert result.stdout == '[]\nTrue False\n', result.stderr


def fails_on(rank):
    rueda.init()
    if rueda.rank() == rank:
        raise KeyError('the cause')
    signal.pause()


@pytest.mark.row('L60')
def test_an_exception_of_a_rank_is_raised_with_its_traceback():
    with pytest.raises(RuntimeError) as caught:
        rueda.run(fails_on, (1,), num_proc=3)
    text = str(caught.value)
    assert text.startswith('Horovod detected that one or more processes exited with non-zero '
                           'status: rank 1 failed first: an exception\n\nTraceback'), text
    assert 'in fails_on' in text and text.endswith("KeyError: 'the cause'\n")


def told():
    """Rank 1 fails and ends slowly; the other is told of it by its shutdown, and is faster."""
    from rueda import _native, _session
    if os.environ['RUEDA_RANK'] == '1':
        atexit.register(time.sleep, 1)  # Before init(), so that it runs after the shutdown.
    rueda.init()
    if rueda.rank() == 1:
        raise KeyError('the cause')
    barrier = _native.BARRIER, _native.DTYPES['uint8'], _native.SUM, 0, None
    _session.current().run('barrier', barrier, 0, 0, (0,))


def test_the_cause_is_named_and_not_what_it_led_to():
    with pytest.raises(RuntimeError, match="rank 1 failed first(.|\n)*KeyError: 'the cause'"):
        rueda.run(told, num_proc=2)


def dies(how):
    if os.environ['RUEDA_RANK'] == '1':
        if how == 'kill':
            os.kill(os.getpid(), signal.SIGKILL)
        os._exit(how)
    signal.pause()


@pytest.mark.parametrize('how, text', [('kill', r'killed by signal 9 \(SIGKILL\)'),
                                       (3, 'exit code 3')])
def test_a_rank_that_dies_is_named(how, text):
    with pytest.raises(RuntimeError, match=f'status: rank 1 failed first: {text}'):
        rueda.run(dies, (how,), num_proc=2)


def leaves(what):
    if what == 'status 0':
        os._exit(0)
    return threading.Lock()  # Cannot be pickled.


def test_a_rank_without_a_result_is_an_error():
    with pytest.raises(RuntimeError, match='rank 0 ended without a result'):
        rueda.run(leaves, ('status 0',))
    with pytest.raises(RuntimeError, match='rank 0 failed first: an exception(.|\n)*pickle'):
        rueda.run(leaves, ('a lock',))


def colour():
    return os.environ.get('COLOUR'), os.environ.get('SHAPE'), sys.executable


def test_variables_and_interpreter_of_the_ranks(monkeypatch, tmp_path):
    monkeypatch.setenv('COLOUR', 'blue')
    python = tmp_path / 'python'
    python.symlink_to(sys.executable)
    (tmp_path / 'pyvenv.cfg').write_text('home = /usr/bin\n')
    assert rueda.run(colour, env={'SHAPE': 'round'}, executable=str(python)) == [
        ('blue', 'round', str(python))]


def noisy():
    print('said')
    print('complained', file=sys.stderr)


def test_output_and_options_reach_the_launcher(capfd, tmp_path):
    rueda.run(noisy, num_proc=2, output_filename=str(tmp_path), verbose=2, start_timeout=9,
              hostfile=None, use_gloo=True)
    out, err = capfd.readouterr()
    assert out == 'said\nsaid\n' and err.count('complained\n') == 2
    assert err.count('rank 1 is process') == 1  # Of --verbose.
    assert (tmp_path / 'rank.1' / 'stdout').read_text() == 'said\n'


def test_arguments_without_effect_are_named_in_one_line(capfd):
    rueda.run(noisy, min_num_proc=1, slots=2, reset_limit=3, cooldown_range=(1, 2), ssh_port=22,
              ssh_identity_file='key', disable_cache=True, use_mpi=True, mpi_args='-x',
              network_interfaces=['lo', 'eth0'], verbose=0, use_gloo=False)
    lines = capfd.readouterr().err.splitlines()
    assert lines == [lines[0], 'complained'] and lines[0] == (
        'ruedarun: INFO: accepted, without effect here: --min-num-proc --slots-per-host '
        '--reset-limit --blacklist-cooldown-range --ssh-port --ssh-identity-file --disable-cache '
        '--mpi --mpi-args --network-interfaces')


@pytest.mark.row('L60')
def test_contradictions_are_value_errors():
    for options, text in (({'hosts': 'localhost:1', 'hostfile': 'x'}, 'hosts or hostfile'),
                          ({'use_gloo': True, 'use_mpi': True}, 'use_gloo or use_mpi'),
                          ({'num_proc': 0}, 'num_proc'), ({'num_proc': 'two'}, 'num_proc'),
                          ({'num_proc': 2, 'min_num_proc': 1, 'min_np': 3}, 'min_np=3 and '),
                          ({'num_proc': 3, 'hosts': 'localhost:2'}, 'not enough slots'),
                          ({'hosts': '192.0.2.7:1'}, 'this host only'),
                          ({'num_proc': 65}, 'at most 64')):
        with pytest.raises(ValueError, match=text), warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)
            rueda.run(place, **options)
    with pytest.raises(ValueError, match='cannot be pickled'):
        rueda.run(place, (threading.Lock(),))
    with pytest.warns(DeprecationWarning, match='np is deprecated; use num_proc') as caught:
        rueda.run(noisy, np=1, min_np=1, network_interface='lo')
    assert [warning.filename for warning in caught] == [__file__] * 3


def test_a_daemon_that_cannot_start_is_an_error(monkeypatch):
    monkeypatch.setenv('RUEDA_DAEMON', '/bin/false')
    with pytest.raises(RuntimeError, match='ruedarun ended with status 126 before a rank failed'):
        rueda.run(place)


WAITING = '''
import os, signal, sys
import rueda
def wait(folder):
    open(os.path.join(folder, str(os.getpid())), 'w').close()
    signal.pause()
if __name__ == '__main__':
    try:
        rueda.run(wait, (sys.argv[1],), num_proc=2)
    except KeyboardInterrupt:
        print('interrupted')
'''


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGKILL])
def test_the_ranks_end_with_the_caller(start_python, tmp_path, number):
    folder = tmp_path / 'pids'
    folder.mkdir()
    temporary = tmp_path / 'temporary'
    temporary.mkdir()
    caller = start_python(WAITING, str(folder), env={'TMPDIR': str(temporary)})
    wait_for(lambda: len(os.listdir(folder)) == 2)
    caller.send_signal(number)
    assert caller.communicate(timeout=20)[0] == ('interrupted\n' * (number == signal.SIGINT))
    wait_for(lambda: not any(alive(int(pid)) for pid in os.listdir(folder)))
    assert not os.listdir(temporary)


def test_it_works_in_several_threads():
    results = [None] * 2

    def work(number):
        results[number] = rueda.run(place, (number,), num_proc=2)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[[rank, 2, (number,), {}] for rank in range(2)] for number in range(2)]


SCRIPT = '''
import rueda
def train(offset):
    rueda.init()
    return rueda.rank() + offset
GUARD
    print(rueda.run(train, (10,), num_proc=2))
'''


def test_functions_of_a_script(python):
    assert python(SCRIPT.replace('GUARD', "if __name__ == '__main__':")).stdout == '[10, 11]\n'
    unguarded = SCRIPT.replace('GUARD', 'if True:')
    without = 'import sys\nsys.modules["cloudpickle"] = None\n'
    guarded = SCRIPT.replace('GUARD', "if __name__ == '__main__':")
    assert python(without + guarded).stdout == '[10, 11]\n'
    # It would start ranks that start ranks.
    result = python(without + unguarded)
    assert result.returncode == 1
    assert 'put the call behind `if __name__ ==' in result.stderr, result.stderr
    result = python(without + 'import rueda\nrueda.run(lambda: 1)')
    assert 'with cloudpickle installed it may be' in result.stderr
    # No script that the ranks could take the function from.
    result = subprocess.run([sys.executable, '-c', without + unguarded], timeout=60,
                            stderr=subprocess.PIPE, text=True)
    assert 'cannot be pickled: it is in __main__, which is no file; with cloudpickle installed ' \
        'it may be' in result.stderr


def test_lambdas_closures_and_functions_of_code(python):
    pytest.importorskip('cloudpickle')
    here = 7
    assert rueda.run(lambda there: here + there, (1,), num_proc=2) == [8, 8]
    assert python(SCRIPT.replace('GUARD', 'if True:')).stdout == '[10, 11]\n'
    result = subprocess.run([sys.executable, '-c', SCRIPT.replace('GUARD', 'if True:')],
                            stdout=subprocess.PIPE, timeout=60, check=True)
    assert result.stdout == b'[10, 11]\n'


def test_the_name_in_horovod_s_package(tmp_path):
    path = tmp_path / 'script.py'
    path.write_text('import horovod, horovod.torch, os\n'
                    'from horovod import run\n'
                    'def rank(): return int(os.environ["HOROVOD_RANK"]), horovod.__name__\n'
                    'if __name__ == "__main__": print(run(rank), horovod.run(rank, num_proc=2))\n')
    result = subprocess.run([sys.executable, '-m', 'rueda.as_horovod', str(path)], timeout=60,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert result.stdout == "[(0, 'rueda')] [(0, 'rueda'), (1, 'rueda')]\n", result.stderr
