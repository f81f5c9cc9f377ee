# SPDX-License-Identifier: Apache-2.0
"""init and shutdown, lone processes, forks, threads, signals, lost ranks."""

import signal
import time

import pytest
import torch

import rueda.torch as hvd


def body_topology():
    import os
    assert hvd.is_initialized()
    assert hvd.rank() == hvd.local_rank() == int(os.environ['HOROVOD_RANK'])
    assert hvd.size() == hvd.local_size() == int(os.environ['HOROVOD_SIZE'])
    assert hvd.cross_rank() == 0 and hvd.cross_size() == 1 and hvd.is_homogeneous()
    assert hvd.global_process_set.size() == hvd.size() and hvd.global_process_set.included()
    assert hvd.global_process_set.ranks == list(range(hvd.size()))
    assert str(hvd.global_process_set).startswith('ProcessSet(process_set_id=0, ranks=[0,')
    assert not hvd.mpi_built() and not hvd.mpi_enabled() and not hvd.mpi_threads_supported()
    assert hvd.gloo_built() and hvd.gloo_enabled() and hvd.nccl_built() == 0
    assert not (hvd.cuda_built() or hvd.rocm_built() or hvd.ccl_built() or hvd.ddl_built())
    hvd.init()  # Does nothing.
    hvd.init(comm=list(range(hvd.size())), process_sets=[])
    with pytest.raises(ValueError, match='a list or "dynamic"'):
        hvd.init(process_sets='fixed')
    with pytest.raises(ValueError):
        hvd.start_timeline('/tmp/unused')
    assert isinstance(hvd.__version__, str)
    return hvd.rank()


@pytest.mark.row('C01', 'C03', 'C04', 'C07', 'C08', 'C09', 'C22')
@pytest.mark.parametrize('size', [2, 3, 4])
def test_topology(ranks, size):
    assert ranks(size).run(body_topology) == list(range(size))


def body_reinit():
    begin = time.monotonic()
    for cycle in range(100):
        assert hvd.allreduce(torch.ones(2), op=hvd.Sum)[0] == hvd.size()
        hvd.barrier()
        hvd.shutdown()
        hvd.init()
    return time.monotonic() - begin


@pytest.mark.row('C02', 'Q61')
@pytest.mark.parametrize('size', [2, 4])
def test_a_hundred_sessions_take_less_than_ten_seconds(ranks, size):
    assert max(ranks(size).run(body_reinit)) < 10


LONE = '''
import os, subprocess, sys
import torch
import rueda.torch as hvd
for cycle in range(3):
    hvd.init()
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    t = torch.arange(5.)
    for op in (hvd.Sum, hvd.Average, hvd.Min, hvd.Max, hvd.Product):
        assert torch.equal(hvd.allreduce(t, op=op), t)
    assert torch.equal(hvd.allgather(t), t) and torch.equal(hvd.broadcast(t, 0), t)
    assert hvd.broadcast_object([1]) == [1] and hvd.allgather_object(2) == [2]
    model = torch.nn.Linear(2, 2)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=.1, momentum=.9),
                                         named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), 0)
    hvd.broadcast_optimizer_state(optimizer, 0)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.synchronize()
        with optimizer.skip_synchronize():
            optimizer.step()
    hvd.barrier()
    hvd.shutdown()
hvd.init()
print('done')
'''


def without_job(monkeypatch):
    import os
    for name in list(os.environ):
        if name.startswith(('RUEDA_', 'HOROVOD_')) and name not in ('RUEDA_LIBRARY',
                                                                    'RUEDA_DAEMON'):
            monkeypatch.delenv(name)


def test_a_lone_process_is_a_job_of_one(python, monkeypatch):
    without_job(monkeypatch)
    result = python(LONE)
    assert (result.returncode, result.stdout, result.stderr) == (0, 'done\n', '')


def test_a_half_set_environment_names_the_missing_variable(python):
    result = python('import rueda.torch as hvd\nhvd.init()', env={'RUEDA_RANK': '0'})
    assert result.returncode == 1 and 'SIZE' in result.stderr and 'StartError' in result.stderr


@pytest.mark.row('C01')
def test_missing_ranks_are_named_after_the_start_timeout(python):
    text = '''
import os, sys
import rueda.torch as hvd
if os.environ['RUEDA_RANK'] != '1':
    try:
        hvd.init()
    except ValueError as error:
        print(error, flush=True)
        sys.exit(7)
else:
    sys.stdin.read() or os.read(os.pipe()[0], 1)
'''
    begin = time.monotonic()
    result = python(text, launch=['-np', '3', '--start-timeout', '2'])
    assert result.returncode == 7 and time.monotonic() - begin < 20
    assert '1' in result.stdout


FORK = '''
import os, sys
import torch
import rueda.torch as hvd
hvd.init()
hvd.allreduce(torch.ones(1))
pid = os.fork()
if pid == 0:
    caught = 0
    for call in (lambda: hvd.allreduce(torch.ones(1)), hvd.rank, hvd.init, hvd.barrier,
                 lambda: hvd.allgather_object(1), lambda: hvd.synchronize(0)):
        try:
            call()
        except RuntimeError as error:
            caught += 'fork' in str(error)
    assert not hvd.is_initialized()
    hvd.shutdown()
    sys.exit(40 + caught)  # With the exit hooks.
assert os.waitpid(pid, 0)[1] >> 8 == 46
assert hvd.allreduce(torch.ones(1), op=hvd.Sum).item() == hvd.size()
loader = torch.utils.data.DataLoader(list(range(40)), batch_size=4, num_workers=2)
for batch in loader:
    hvd.allreduce(batch.float())
print('right')
'''


def test_a_forked_child_raises_and_leaves_the_session_alone(python):
    result = python(FORK, launch=['-np', '2'])
    assert (result.returncode, result.stdout.count('right')) == (0, 2), result.stderr


INTERRUPT = '''
import os, signal, sys, threading, time
import torch
import rueda.torch as hvd
hvd.init()
hvd.barrier()
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
if hvd.rank() == 0:
    threading.Timer(0.5, interrupt).start()
    begin = time.monotonic()
    try:
        WAIT
    except KeyboardInterrupt:
        assert time.monotonic() - begin < 5
        print('interrupted', flush=True)
else:
    os.read(os.pipe()[0], 1)  # Never takes part.
os._exit(9)
'''


@pytest.mark.parametrize('wait', [
    "hvd.allreduce(torch.ones(1))", "hvd.barrier()",
    "hvd.synchronize(hvd.allreduce_async(torch.ones(1)))", "hvd.allgather_object(1)"])
def test_ctrl_c_ends_a_wait(python, wait):
    result = python(INTERRUPT.replace('WAIT', wait), launch=['-np', '2'])
    assert result.stdout == 'interrupted\n', result.stderr
    assert 'ignored' not in result.stderr


INTERRUPT_INIT = '''
import os, signal, threading
import rueda.torch as hvd
if os.environ['RUEDA_RANK'] == '0':
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        hvd.init()
    except KeyboardInterrupt:
        print('interrupted', flush=True)
        os._exit(9)
os.read(os.pipe()[0], 1)
'''


def test_ctrl_c_ends_init(python):
    result = python(INTERRUPT_INIT, launch=['-np', '2'])
    assert (result.returncode, result.stdout) == (9, 'interrupted\n'), result.stderr


def body_interrupted_between_instructions():
    import threading
    from rueda import _session
    _session.current()._calls.append(threading.get_ident())  # As if Ctrl-C had come there.
    begin = time.monotonic()
    hvd.barrier()
    hvd.shutdown()
    assert time.monotonic() - begin < 5


def test_shutdown_after_an_interrupt_anywhere(ranks):
    ranks(2).run(body_interrupted_between_instructions)
    ranks(2).run(body_topology)


HANDLER = '''
import os, signal, sys, threading
import torch
import rueda.torch as hvd
hvd.init()
hvd.barrier()
def handle(number, frame):
    print('handled', flush=True)
    if number == signal.SIGTERM:
        hvd.shutdown()
        sys.exit(5)
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, handle)
if hvd.rank() == 0:
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
    threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGTERM)).start()
    hvd.allreduce(torch.ones(1))
else:
    try:
        hvd.allreduce(torch.ones(1), name='other')
    except hvd.ShutDownError:
        print('told', flush=True)
        os._exit(0)
'''


def test_a_handler_may_return_or_shut_down(python):
    result = python(HANDLER, launch=['-np', '2', '--grace-period', '20'])
    assert sorted(result.stdout.split()) == ['handled', 'handled', 'told'], result.stderr
    assert result.returncode == 5 and 'ignored' not in result.stderr


THREADS = '''
import threading
import torch
import rueda.torch as hvd
hvd.init()
torch.set_num_threads(1)
wrong = []
def work(number):
    for step in range(100):
        name = f't{number}.{step % 3}'
        if step % 2:
            result = hvd.allreduce(torch.full((50,), float(number)), name=name, op=hvd.Sum)
        else:
            result = hvd.synchronize(hvd.allreduce_async(torch.full((50,), float(number)),
                                                         name=name, op=hvd.Sum))
        if not torch.all(result == number * hvd.size()):
            wrong.append((number, step))
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not wrong, wrong
hvd.barrier()
# A thread that waits is ended by shutdown() in another one.
ended = []
rank = hvd.rank()
def wait():
    try:
        hvd.allreduce(torch.ones(1), name=f'alone.{rank}')
    except hvd.HorovodInternalError as error:
        ended.append(error)
def submit():
    try:
        while True:
            hvd.allreduce_async(torch.ones(1))
    except hvd.HorovodInternalError as error:
        ended.append(error)
threads = [threading.Thread(target=wait), threading.Thread(target=submit)]
[thread.start() for thread in threads]
hvd.allreduce(torch.ones(1), name='both')
hvd.shutdown()
[thread.join() for thread in threads]
assert len(ended) == 2, ended
print('right')
'''


@pytest.mark.row('Q80')
@pytest.mark.parametrize('size', ['2', '3'])
def test_several_threads(python, size):
    result = python(THREADS, launch=['-np', size])
    assert result.stdout.count('right') == int(size), result.stderr


LOST = '''
import os, signal, sys, time
import torch
import rueda.torch as hvd
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # The launcher ends the others at once.
hvd.init()
hvd.barrier()
if hvd.rank() == 1:
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic()
try:
    while True:
        hvd.allreduce(torch.ones(1000))
except hvd.RankLostError as error:
    assert time.monotonic() - begin < 3
    print(error, flush=True)
try:
    hvd.allreduce(torch.ones(1))
    print('no error')
except hvd.HorovodInternalError:
    pass
os._exit(3)
'''


@pytest.mark.row('Q60')
def test_a_lost_rank_is_named(python):
    result = python(LOST, launch=['-np', '2', '--grace-period', '20'])
    assert 'rank 1' in result.stdout.lower() and 'no error' not in result.stdout, result.stdout
    assert result.returncode == 128 + signal.SIGKILL
    assert 'rank 1' in result.stderr and 'SIGKILL' in result.stderr


EXIT = '''
import torch
import rueda.torch as hvd
hvd.init()
model = torch.nn.Linear(3, 3)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
model(torch.ones(1, 3)).sum().backward()
optimizer.step()
hvd.barrier()
try:
    pending = hvd.allreduce_async(torch.ones(5), name=f'pending.{hvd.rank()}')
except hvd.HorovodInternalError:
    pass  # The other rank has ended already.
'''


@pytest.mark.row('Q62')
def test_the_interpreter_ends_cleanly_with_operations_pending(python):
    result = python(EXIT, launch=['-np', '2'])
    assert (result.returncode, result.stdout, result.stderr) == (0, '', '')


COST = '''
import time, torch
import rueda.torch as hvd
from rueda import _session
hvd.init()
# What Python adds: the library's own call does nothing here.
session = _session.current()
class Library:
    rueda_run = staticmethod(lambda session, op: 0)
real, session._library = session._library, Library
tensor, best = torch.ones(1), 1e9
for _ in range(20):
    begin = time.process_time()
    for _ in range(2000):
        hvd.allreduce_(tensor, name='x', op=hvd.Sum)
    best = min(best, (time.process_time() - begin) / 2000)
session._library = real
print(best * 1e6)
'''


def test_python_costs_less_than_ten_microseconds_a_call(python, monkeypatch):
    without_job(monkeypatch)
    result = python(COST)
    assert float(result.stdout) < 10, result.stderr
