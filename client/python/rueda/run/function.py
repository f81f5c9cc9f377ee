# SPDX-License-Identifier: Apache-2.0
"""run(): calls a function in every rank of a new job on this host, and returns the results."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import types
import warnings

from rueda.run import hosts as host_options
from rueda.run import processes

try:
    import cloudpickle as _pickler
except ImportError:
    _pickler = pickle

# Arguments of run() whose option of ruedarun has another name; the rest have the same.
_OPTIONS = {'slots': 'slots-per-host', 'cooldown_range': 'blacklist-cooldown-range',
            'use_gloo': 'gloo', 'use_mpi': 'mpi', 'num_proc': 'num-proc'}
_FLAGS = {'disable_cache', 'use_gloo', 'use_mpi', 'verbose'}
_NOT_OPTIONS = {'func', 'args', 'kwargs', 'env', 'executable'}
_DEPRECATED = {'np': 'num_proc', 'min_np': 'min_num_proc', 'max_np': 'max_num_proc',
               'network_interface': 'network_interfaces'}

_refused = None


def run(func, args=(), kwargs=None, num_proc=1, min_num_proc=None, max_num_proc=None, slots=None,
        reset_limit=None, cooldown_range=None, hosts=None, hostfile=None,
        host_discovery_script=None, start_timeout=None, ssh_port=None, ssh_identity_file=None,
        disable_cache=None, output_filename=None, verbose=None, use_gloo=None, use_mpi=None,
        mpi_args=None, network_interface=None, network_interfaces=None, executable=None, np=None,
        min_np=None, max_np=None, *, env=None):
    """Calls `func(*args, **kwargs)` in `num_proc` new processes, the ranks of a job of this host.

    Blocks until all have ended; returns the list of what the calls returned, by rank. The function
    calls init() itself. It is pickled, with cloudpickle where that is installed: lambdas, closures
    and functions of a notebook then go as well. Without it, functions of a script do if the script
    keeps what it does behind `if __name__ == '__main__'`.

    `hosts`, `hostfile`, `start_timeout`, `output_filename`, `verbose`: as the options of ruedarun.
    `executable`: another Python for the ranks. `env`: variables for them, beside those of this
    process. The other arguments are Horovod's; those without effect here are named in one INFO
    line. `np`, `min_np`, `max_np` and `network_interface` are old names of others.

    ValueError: arguments that contradict each other, another host, a function that cannot be
    pickled. RuntimeError: a rank failed; the text has the number of the first one and, where it was
    an exception, its traceback. Any thread; the ranks end when this process does.
    """
    given = _renamed({name: value for name, value in locals().items()
                      if name not in _NOT_OPTIONS and value is not None})
    size = _number_of_ranks(given)
    if _refused is not None:
        raise RuntimeError(_refused)
    with contextlib.ExitStack() as stack:
        call, verdict, *outcomes = [stack.enter_context(_memory_file()) for _ in range(size + 2)]
        call.write(_call(func, args, kwargs or {}))
        call.flush()
        command = [sys.executable, '-m', 'rueda.run', *_command_line(given),
                   '--verdict-file', _path(verdict), '--', executable or sys.executable, '-m',
                   'rueda.run.task', _path(call), *map(_path, outcomes)]
        status = _launch(command, {**os.environ, **(env or {})})
        outcomes = [_content(outcome) for outcome in outcomes]
        if status != 0:
            raise RuntimeError(_failure(_content(verdict), outcomes, status))
    return [_result(outcome, rank) for rank, outcome in enumerate(outcomes)]


def _memory_file():
    # Without a name in a folder: nothing is left when this process is killed.
    return os.fdopen(os.memfd_create('rueda-run'), 'w+b')


def _path(file):
    """Where processes of this user find a file of this process."""
    return f'/proc/{os.getpid()}/fd/{file.fileno()}'


def _content(file):
    """The pickled object that was written into the file; None where none was, or not all of it."""
    file.seek(0)
    try:
        return pickle.load(file)
    except (EOFError, pickle.UnpicklingError):
        return None


def dumps(value):
    """The value, pickled as functions are."""
    return _pickler.dumps(value)


def refuse_calls(reason):
    """From now on run() raises RuntimeError with this reason; None: it works again."""
    global _refused
    _refused = reason


def _renamed(given):
    for old, new in _DEPRECATED.items():
        if old not in given:
            continue
        warnings.warn(f'the argument {old} is deprecated; use {new}', DeprecationWarning,
                      stacklevel=4)
        value = given.pop(old)
        if given.get(new, value) != value and (new, given[new]) != ('num_proc', 1):
            raise ValueError(f'{old}={value!r} and {new}={given[new]!r} mean the same argument')
        given[new] = value
    return given


def _number_of_ranks(given):
    for one, other in (('hosts', 'hostfile'), ('use_gloo', 'use_mpi')):
        if given.get(one) and given.get(other):
            raise ValueError(f'give either {one} or {other}, not both')
    number = given.get('num_proc')
    if not isinstance(number, int) or number < 1:
        raise ValueError(f'num_proc must be a number from 1, not {number!r}')
    return host_options.resolve(types.SimpleNamespace(**{
        'hosts': None, 'hostfile': None, 'host_discovery_script': None, **given}))[1]


def _call(func, args, kwargs):
    """What the ranks need, pickled: where to find modules, the script, and the call."""
    try:
        data = _pickler.dumps((func, args, kwargs))
        return pickle.dumps({'path': sys.path, 'data': data, 'script': _script(data)})
    except Exception as error:
        advice = '' if _pickler is not pickle else '; with cloudpickle installed it may be'
        raise ValueError(f'{func!r} or an argument cannot be pickled: {error}{advice}') from error


def _script(data):
    """Path of this process's script, where ranks have to look into it; else None."""
    # cloudpickle sends what is in __main__ along, pickle its names only.
    if _pickler is not pickle or b'__main__' not in data:
        return None
    script = getattr(sys.modules.get('__main__'), '__file__', None)
    if script is None:
        raise ValueError('it is in __main__, which is no file')
    return os.path.abspath(script)


def _command_line(given):
    line = []
    for name, value in given.items():
        option = '--' + _OPTIONS.get(name, name.replace('_', '-'))
        if name == 'cooldown_range':
            line += [option, *map(str, value)]
        elif name in _FLAGS:
            line += [option] * bool(value)
        else:
            text = ','.join(value) if isinstance(value, (list, tuple)) else str(value)
            line.append(f'{option}={text}')
    return line


def _launch(command, environment):
    parent = os.getpid()
    # A session of its own: Ctrl-C reaches the launcher through this process, and once.
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
        preexec_fn=lambda: processes.end_with_parent(parent, signal.SIGTERM))
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _failure(verdict, outcomes, status):
    if verdict is None:
        return f'ruedarun ended with status {status} before a rank failed; its messages say why'
    errors = [(outcome['when'], rank, outcome['traceback'])
              for rank, outcome in enumerate(outcomes) if outcome and 'traceback' in outcome]
    rank, how, text = verdict['rank'], verdict['how'], ''
    if errors and not verdict['killed']:
        # Others may have been faster in ending, after they had been told of the failure.
        _, rank, text = min(errors)
        how, text = 'an exception', '\n\n' + text
    return ('Horovod detected that one or more processes exited with non-zero status: '
            f'rank {rank} failed first: {how}{text}')


def _result(outcome, rank):
    if outcome is None:
        raise RuntimeError(f'rank {rank} ended without a result: the function has not returned')
    return pickle.loads(outcome['result'])
