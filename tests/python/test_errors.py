# SPDX-License-Identifier: Apache-2.0
"""Faults of the caller are ValueErrors; what ranks disagree on fails on all of them, and passes."""

import pytest
import torch

import rueda.torch as hvd
from rueda import exceptions


def works():
    """The session is still usable."""
    assert hvd.allreduce(torch.ones(3), op=hvd.Sum, name='works').tolist() == [hvd.size()] * 3


def body_caller_faults():
    square = torch.ones(3, 3)
    with pytest.raises(ValueError, match='contiguous'):
        hvd.allreduce(square.t()[:2], name='strided')
    with pytest.raises(ValueError, match='contiguous'):
        hvd.broadcast_async_(square[:, 1], 0)
    with pytest.raises(ValueError, match='complex32'):
        hvd.allreduce_(torch.empty(2, dtype=torch.complex32))
    with pytest.raises(ValueError, match='to_dense'):
        hvd.allgather(torch.ones(2).to_sparse())
    with pytest.raises(ValueError, match='meta'):
        hvd.allreduce_async(torch.ones(2, device='meta'))
    with pytest.raises(TypeError, match='list'):
        hvd.allreduce_([1.0])
    for root in (-1, hvd.size()):
        with pytest.raises(ValueError, match='root_rank'):
            hvd.broadcast(torch.ones(1), root)
    with pytest.raises(ValueError, match='at least one'):
        hvd.grouped_allreduce([])
    works()


@pytest.mark.row('Q01', 'T53')
def test_unsuitable_tensors_and_arguments_are_value_errors(ranks):
    ranks(2).run(body_caller_faults)


def body_nul():
    name = f'n\0{hvd.rank():03}'
    for call in (lambda: hvd.allreduce(torch.ones(1), name=name),
                 lambda: hvd.allgather_async(torch.ones(1), name=name + '.noname.'),
                 lambda: hvd.grouped_allreduce([torch.ones(1)] * 2, name=name)):
        for _ in range(2):
            with pytest.raises(ValueError, match=r'n\\x000.* contains a NUL'):
                call()
    works()


def test_names_with_a_nul_are_refused(ranks):
    # They ended there: ranks that named other tensors were matched.
    ranks(2).run(body_nul)


def negative(*values):
    """A contiguous tensor whose memory holds other signs than it has."""
    tensors = [torch.complex(torch.ones(1), torch.tensor([-value])).conj().imag
               for value in values]
    assert all(tensor.is_neg() and tensor.is_contiguous() for tensor in tensors)
    return tensors[0] if len(tensors) == 1 else tensors


def body_negative_bit():
    for call in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allgather,
                 lambda tensor: hvd.broadcast_(tensor, 0),
                 lambda tensor: hvd.grouped_allreduce([tensor, tensor])):
        with pytest.raises(ValueError, match='resolve_neg'):
            call(negative(3.0))
    assert hvd.allreduce(negative(3.0).resolve_neg(), op=hvd.Sum) == 3 * hvd.size()
    first, second = negative(3.0 + hvd.rank(), 5.0 + hvd.rank())
    hvd.broadcast_parameters([('first', first), ('second', second)], 0)
    assert first == 3 and second == 5
    leaf = torch.zeros(1, requires_grad=True)
    hvd.allreduce(leaf, op=hvd.Sum).backward(negative(2.0))
    assert leaf.grad == 2 * hvd.size()
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=hvd.Sum)
    weight.grad = negative(4.0)
    optimizer.step()
    assert weight == -4 * hvd.size()
    works()


def test_signs_that_torch_keeps_beside_the_memory_are_not_lost(ranks):
    # What the memory held was summed.
    ranks(2).run(body_negative_bit)


def body_duplicate():
    if hvd.rank() == 0:
        first = hvd.allreduce_async(torch.ones(2), name='twice', op=hvd.Sum)
        with pytest.raises(ValueError, match='twice'):
            hvd.allreduce_async(torch.ones(2), name='twice', op=hvd.Sum)
        hvd.barrier()
    else:
        hvd.barrier()
        first = hvd.allreduce_async(torch.ones(2), name='twice', op=hvd.Sum)
    assert hvd.synchronize(first).tolist() == [hvd.size()] * 2
    works()


@pytest.mark.row('Q01')
def test_a_name_in_flight_is_refused_and_the_first_call_completes(ranks):
    ranks(2).run(body_duplicate)


def disagreements(rank):
    """(what, call) pairs; the call differs on rank 1."""
    other = rank == 1
    ones = torch.ones(4)
    return [
        ('dtype', lambda: hvd.allreduce(ones.double() if other else ones, name='d')),
        ('shape', lambda: hvd.allreduce(torch.ones(5) if other else ones, name='s')),
        ('rank count of the shape',
         lambda: hvd.allreduce(ones.reshape(2, 2) if other else ones, name='n')),
        ('reduction', lambda: hvd.allreduce(ones, op=hvd.Sum if other else hvd.Max, name='r')),
        ('scale', lambda: hvd.allreduce(ones, prescale_factor=0.5 if other else 0.25, name='p')),
        ('root', lambda: hvd.broadcast(ones, 1 if other else 0, name='b')),
        ('broadcast shape', lambda: hvd.broadcast(torch.ones(2) if other else ones, 0, name='c')),
        ('columns', lambda: hvd.allgather(torch.ones(2, 3 if other else 2), name='g')),
        ('gathered dtype', lambda: hvd.allgather(ones.int() if other else ones, name='h')),
        ('asynchronous shape', lambda: hvd.synchronize(
            hvd.allreduce_async(torch.ones(5) if other else ones, name='a'))),
    ]


def body_disagreements():
    for what, call in disagreements(hvd.rank()):
        with pytest.raises(hvd.HorovodInternalError) as caught:
            call()
        assert isinstance(caught.value, exceptions.MismatchError), what
        assert 'ismatch' in str(caught.value), (what, str(caught.value))
        works()


@pytest.mark.row('Q02', 'Q03')
@pytest.mark.parametrize('size', [2, 3])
def test_what_ranks_disagree_on_fails_on_all_and_the_session_goes_on(ranks, size):
    ranks(size).run(body_disagreements, seconds=30)


def body_texts():
    tensor = torch.ones(3 + hvd.rank()).to(torch.float32 if hvd.rank() == 0 else torch.int64)
    with pytest.raises(exceptions.MismatchError) as caught:
        hvd.allreduce(tensor, name='weights')
    text = str(caught.value)
    assert 'weights' in text and 'float32' in text and 'int64' in text, text


def test_the_text_names_the_tensor_and_both_values(ranks):
    ranks(2).run(body_texts)


def body_scalar_gather():
    with pytest.raises((ValueError, hvd.HorovodInternalError), match='scalar'):
        hvd.allgather(torch.tensor(1.0), name='scalar')
    works()


@pytest.mark.row('Q11')
def test_allgather_of_scalars_is_an_error(ranks):
    ranks(2).run(body_scalar_gather)


@pytest.mark.row('C04', 'C05', 'Q04')
def test_operations_before_init_raise_and_topology_is_a_value_error():
    assert hvd.is_initialized() is False
    for function in (hvd.rank, hvd.size, hvd.local_rank, hvd.local_size, hvd.cross_rank,
                     hvd.cross_size, hvd.is_homogeneous, hvd.mpi_threads_supported):
        with pytest.raises(ValueError) as caught:
            function()
        assert 'Horovod has not been initialized; use hvd.init().' in str(caught.value)
    for call in (lambda: hvd.allreduce(torch.ones(1)), lambda: hvd.allreduce_(torch.ones(1)),
                 lambda: hvd.allgather(torch.ones(1)), lambda: hvd.broadcast_(torch.ones(1), 0),
                 hvd.barrier, lambda: hvd.synchronize(0), lambda: hvd.broadcast_object(1)):
        with pytest.raises(hvd.HorovodInternalError, match='not been initialized'):
            call()
    hvd.shutdown()  # Does nothing.


def body_after_shutdown():
    handle = hvd.allreduce_async(torch.ones(1), name='x')
    hvd.synchronize(handle)
    hvd.barrier()
    hvd.shutdown()
    with pytest.raises(hvd.HorovodInternalError, match='not been initialized'):
        hvd.allreduce(torch.ones(1))
    with pytest.raises(ValueError):
        hvd.rank()
    assert not hvd.is_initialized()


@pytest.mark.row('C02', 'Q04')
def test_after_shutdown_calls_raise(ranks):
    ranks(2).run(body_after_shutdown)


def body_shut_down_while_pending():
    if hvd.rank() == 1:
        hvd.barrier()
        hvd.shutdown()
        return
    waiting = hvd.allreduce_async(torch.ones(1), name='never')
    hvd.barrier()
    with pytest.raises(hvd.ShutDownError, match='shut down'):
        hvd.synchronize(waiting)
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(torch.ones(1), name='later')
    hvd.shutdown()


@pytest.mark.row('C02', 'Q05', 'Q60')
def test_a_shutdown_elsewhere_ends_pending_operations(ranks):
    ranks(2).run(body_shut_down_while_pending)
    ranks(2).run(body_after_shutdown)


def test_codes_become_the_right_classes():
    from rueda import _native
    wanted = {1: ValueError, 2: ValueError, 3: exceptions.MismatchError,
              4: exceptions.RankLostError, 5: exceptions.ShutDownError,
              6: exceptions.DaemonLostError, 7: exceptions.NotInitializedError,
              8: exceptions.DeadlineExceededError, 9: exceptions.ResourceExhaustedError,
              11: exceptions.HorovodInternalError, 14: exceptions.HorovodInternalError,
              15: NotImplementedError, 16: exceptions.StalledError}
    for code, kind in wanted.items():
        assert isinstance(_native.failure(code), kind), code


INTERRUPTED = '''
import signal
import torch
import rueda.torch as hvd
hvd.init()
hvd.barrier()
def handle(number, frame):
    raise KeyError('enough')
signal.signal(signal.SIGALRM, handle)
if hvd.rank() == 0:
    signal.alarm(1)
    try:
        hvd.allreduce(torch.ones(1), name='never')
    except KeyError:
        pass
for _ in range(2):
    try:
        hvd.allreduce(torch.ones(1), name='later')
    except hvd.HorovodInternalError as error:
        if hvd.rank() == 0:
            print(type(error).__name__, error, flush=True)
            continue
    hvd.shutdown()
    break
hvd.shutdown()
hvd.init()
assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == 2
'''


def test_calls_after_an_interrupt_tell_why_the_session_has_ended(python):
    # They said that this process had shut it down, which nobody had.
    result = python(INTERRUPTED, launch=['-np', '2'])
    assert result.returncode == 0, result.stderr
    assert result.stdout == (
        "HorovodInternalError the session has ended: interrupted in allreduce 'allreduce.never', "
        'by an exception of a signal handler; shutdown() and init() start a new one\n') * 2


AT_ONCE = '''
import os
import signal
import threading
import time
import torch
import rueda.torch as hvd
if os.environ['RUEDA_RANK'] == '0':
    time.sleep(1)  # Comes last, so that init() does not wait.
hvd.init()
if hvd.rank() == 0:
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    try:
        hvd.allreduce(torch.ones(5), name='a')
    except KeyboardInterrupt:
        print('interrupted', time.monotonic() - begin < 2, flush=True)
else:
    try:
        time.sleep(4)
        hvd.allreduce(torch.ones(5), name='a')
    except hvd.HorovodInternalError:
        pass
'''


def test_an_interrupt_in_the_first_wait_of_a_session_is_heard(python):
    # It was lost, with a traceback, and so were all later ones.
    result = python(AT_ONCE, launch=['-np', '2'])
    assert result.stdout == 'interrupted True\n', result.stderr
    assert 'Traceback' not in result.stderr
