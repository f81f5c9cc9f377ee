# SPDX-License-Identifier: Apache-2.0
"""Tensors in shared memory: shared_zeros()."""

import gc

import pytest
import torch

import rueda.torch as hvd


def body_shapes_and_dtypes():
    for size in ((3, 5), (), (0, 4), (7,)):
        for dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16):
            tensor = hvd.shared_zeros(*size, dtype=dtype)
            assert tensor.shape == size and tensor.dtype == dtype and tensor.is_contiguous()
            assert not tensor.to(torch.float32).any()
    assert hvd.shared_zeros((2, 3)).shape == hvd.shared_zeros(torch.Size([2, 3])).shape == (2, 3)
    assert hvd.shared_zeros(4).dtype == torch.get_default_dtype()
    for size in ((-1,), (3, -1)):  # Once an empty tensor.
        with pytest.raises(RuntimeError, match='negative'):
            hvd.shared_zeros(*size)


def test_shapes_and_dtypes_are_those_of_torch_zeros(ranks):
    ranks(2).run(body_shapes_and_dtypes)


def body_operations(shape):
    tensor = hvd.shared_zeros(*shape)
    for value in (1, 2):
        tensor.fill_(value + hvd.rank())
        assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
        assert (tensor == 2 * value + 1).all()
        tensor.fill_(value + hvd.rank())
        hvd.synchronize(hvd.allreduce_async_(tensor, op=hvd.Sum))
        assert (tensor == 2 * value + 1).all()
    mine = torch.ones(shape) if hvd.rank() else tensor.fill_(0)
    hvd.allreduce_(mine, name='mixed')
    assert (mine == 0.5).all()


@pytest.mark.parametrize('shape', [(3,), (1000, 333)])
def test_collectives_on_shared_memory_and_on_both_kinds(ranks, shape):
    ranks(2).run(body_operations, shape)


def body_reuse():
    addresses = set()
    for _ in range(50):
        tensor = hvd.shared_zeros(1 << 20)
        part = tensor[7:9]
        del tensor
        part.fill_(3)
        addresses.add(part.data_ptr())
        assert hvd.shared_zeros(16).sum() == 0
        del part
        gc.collect()
    assert len(addresses) < 5, addresses


def test_memory_is_given_back_with_the_last_tensor_that_uses_it(ranks):
    ranks(2).run(body_reuse)


def body_outlives():
    tensor = hvd.shared_zeros(100).fill_(5)
    hvd.shutdown()
    assert (tensor == 5).all()
    tensor.add_(1)
    with pytest.raises(hvd.HorovodInternalError):
        hvd.shared_zeros(3)
    hvd.init()
    assert hvd.allreduce(tensor).tolist() == [6.0] * 100


def test_a_tensor_outlives_its_session(ranks):
    ranks(2).run(body_outlives)


def body_too_much():
    with pytest.raises(hvd.HorovodInternalError, match='bytes'):
        hvd.shared_zeros(1 << 50)
    assert hvd.allreduce(torch.ones(1)).item() == 1


def test_more_than_the_host_has_is_an_error_and_loses_nothing(ranks):
    ranks(2).run(body_too_much)


def body_gathered_rows_come_again():
    addresses, half = set(), 1 << 16
    for number in range(20):
        rows = torch.full((half, 2), float(hvd.rank()))
        start = (hvd.allgather_async, hvd.alltoall_async)[number % 2]
        if number % 4 < 2:
            output = hvd.allgather(rows) if number % 2 == 0 else hvd.alltoall(rows)
        else:
            output = hvd.synchronize(start(rows))
            output = output if number % 2 == 0 else output[0]
        middle = len(output) // 2
        assert (output[:middle] == 0).all() and (output[middle:] == 1).all()
        addresses.add(output.data_ptr())
        del output
        gc.collect()
    assert len(addresses) < 8, addresses
    kept = [hvd.allgather(torch.ones(3)), hvd.synchronize(hvd.allgather_async(torch.ones(3)))]
    hvd.shutdown()
    assert all(tensor.tolist() == [1.0] * 6 for tensor in kept)
    hvd.init()
    assert hvd.allgather(kept[0]).tolist() == [1.0] * 12


def test_gathered_rows_lie_in_memory_that_comes_again_and_outlive_a_session(ranks):
    ranks(2).run(body_gathered_rows_come_again)


def body_kept_results(size):
    def resident():
        with open('/proc/self/statm', encoding='ascii') as file:
            return int(file.read().split()[1]) * 4096 >> 20

    for cycle in range(12):
        kept = hvd.allgather(torch.full((4 << 20,), 1.0), name='rows')  # 16 MiB and more.
        hvd.barrier()
        hvd.shutdown()
        assert kept.sum().item() == size * (4 << 20)
        del kept
        hvd.init()
        if cycle == 2:
            before = resident()
    return resident() - before


def body_results_of_closed_sessions():
    return body_kept_results(hvd.size())


def test_results_that_outlive_their_session_go_with_their_last_use(ranks):
    # Each session left its kept results mapped for ever: 29 MiB a turn.
    assert max(ranks(2).run(body_results_of_closed_sessions)) < 100


LIMIT = '''
import resource
import torch
import rueda.torch as hvd
from rueda import exceptions
large = torch.ones(4 << 20)
hvd.init()
hvd.allreduce(torch.ones(3), name='warm')


def leave(mebibytes):
    with open('/proc/self/status') as file:
        size = next(line for line in file if line.startswith('VmSize')).split()[1]
    resource.setrlimit(resource.RLIMIT_AS, (int(size) * 1024 + (mebibytes << 20), -1))


'''

PEERS = LIMIT + '''
if hvd.rank() == 1:
    leave(64)
else:
    kept = hvd.shared_zeros(32 << 20)
for i in range(20):
    assert hvd.allreduce(torch.ones(3), name=str(i), op=hvd.Sum).tolist() == [2, 2, 2]
hvd.barrier()
'''

REFUSED = LIMIT + '''
if hvd.rank() == 1:
    leave(8)
for i in range(30):
    try:
        hvd.synchronize(hvd.allreduce_async_(large, name='large', op=hvd.Max))
        raise AssertionError('there was memory')
    except exceptions.ResourceExhaustedError as error:
        assert 'rank 1 ' in str(error), error
    assert hvd.allreduce(torch.ones(3), name='small', op=hvd.Sum).tolist() == [2, 2, 2]
hvd.barrier()
'''


def test_a_peers_memory_that_a_rank_does_not_need_it_need_not_map(python):
    """Once that rank lost its session, in a sum of three numbers, and the job with it."""
    result = python(PEERS, launch=['-np', '2'])
    assert result.returncode == 0, result.stderr


def test_a_rank_without_memory_is_told_so_every_time_and_the_job_goes_on(python):
    """Once a peer's segment that came meanwhile ended it: "unexpected message"."""
    result = python(REFUSED, launch=['-np', '2'])
    assert result.returncode == 0, result.stderr


UNMAPPED = LIMIT + '''
leave(8)
for i in range(600):
    try:
        hvd.shared_zeros(16 << 20)
        raise AssertionError('there was memory')
    except exceptions.ResourceExhaustedError as error:
        assert 'mapping ' in str(error), (i, error)
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
assert hvd.shared_zeros(16 << 20).sum() == 0
'''


def test_what_could_not_be_mapped_is_for_the_next_try(python):
    """Once every try kept 64 MiB of the user's shared memory, until there was no more."""
    result = python(UNMAPPED)
    assert result.returncode == 0, result.stderr
