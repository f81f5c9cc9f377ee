# SPDX-License-Identifier: Apache-2.0
"""Data types beyond those of test_operations.py, and the table of what can be done with each."""

import json
import subprocess

import pytest
import torch

import rueda
import rueda.torch as hvd
from rueda import _native

SIZES = [2, 3, 4]
NAMES = ['uint32', 'uint64', 'float8_e4m3fn', 'float8_e5m2', 'complex64', 'complex128']
# Older versions of torch have some of them only.
DTYPES = {name: getattr(torch, name) for name in NAMES if hasattr(torch, name)}
OPS = {'average': hvd.Average, 'sum': hvd.Sum, 'min': hvd.Min, 'max': hvd.Max,
       'product': hvd.Product}


def sample(rank, dtype, shape=(3, 5)):
    """Small whole numbers, other ones on each rank, exact in every dtype."""
    count = torch.Size(shape).numel()
    numbers = ((torch.arange(count) * (rank + 1) + rank) % 5 + 1).reshape(shape)
    if dtype.is_complex:
        numbers = torch.complex(numbers.double(), numbers.flip(0).double() - 3)
    return numbers.to(dtype)


def wide(tensor):
    """In the widest type there is, since torch can do little with the narrow ones."""
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)


def same(result, wanted):
    return (result.dtype == wanted.dtype and result.shape == wanted.shape
            and torch.equal(wide(result), wide(wanted)))


def expected(name, dtype, shape=(3, 5)):
    """The result over all ranks, computed in the widest type and rounded by torch."""
    stack = torch.stack([wide(sample(rank, dtype, shape)) for rank in range(hvd.size())])
    result = {'sum': lambda: stack.sum(0), 'average': lambda: stack.sum(0) / hvd.size(),
              'min': lambda: stack.min(0)[0], 'max': lambda: stack.max(0)[0],
              'product': lambda: stack.prod(0)}[name]()
    if not dtype.is_floating_point and not dtype.is_complex:
        result = result.trunc()
    return result.to(dtype)


def close(result, wanted):
    """Equal, but for a factor 1/3 that is rounded to float32."""
    assert result.dtype == wanted.dtype and result.shape == wanted.shape
    assert torch.allclose(wide(result), wide(wanted), rtol=1e-6, atol=0), (result, wanted)


def body_allreduce():
    for name, dtype in DTYPES.items():
        possible = rueda.types()[name]['reduce_ops']
        for operation, op in OPS.items():
            tensor = sample(hvd.rank(), dtype)
            if operation not in possible:
                with pytest.raises(ValueError, match=f"allreduce.x': {name} has no {operation}"):
                    hvd.allreduce(tensor, name='x', op=op)
                with pytest.raises(ValueError, match=f"allreduce.x': {name} has no {operation}"):
                    hvd.allreduce_async(tensor, name='x', op=op)
                continue
            wanted = expected(operation, dtype)
            close(hvd.allreduce(tensor, name='x', op=op), wanted)
            assert same(tensor, sample(hvd.rank(), dtype))
            close(hvd.synchronize(hvd.allreduce_async(tensor, name='x', op=op)), wanted)
            assert hvd.allreduce_(tensor, name='x', op=op) is tensor
            close(tensor, wanted)
        for shape in ((), (0,), (7,), (300, 301)):
            close(hvd.allreduce(sample(hvd.rank(), dtype, shape), op=hvd.Sum),
                  expected('sum', dtype, shape))


@pytest.mark.parametrize('size', SIZES)
def test_allreduce_does_what_the_table_says(ranks, size):
    ranks(size).run(body_allreduce)


def body_move():
    rank, size = hvd.rank(), hvd.size()
    for dtype in DTYPES.values():
        gathered = hvd.allgather(sample(rank, dtype, (rank, 2, 3)))
        assert same(gathered, torch.cat([sample(other, dtype, (other, 2, 3))
                                         for other in range(size)]))
        for root in range(size):
            tensor = sample(rank, dtype)
            assert same(hvd.broadcast(tensor, root), sample(root, dtype))
            assert same(tensor, sample(rank, dtype))
            assert hvd.broadcast_(tensor, root) is tensor and same(tensor, sample(root, dtype))
        first, second = hvd.grouped_allreduce([sample(rank, dtype), sample(rank, dtype, (7,))],
                                              op=hvd.Sum)
        close(first, expected('sum', dtype))
        close(second, expected('sum', dtype, (7,)))


@pytest.mark.parametrize('size', SIZES)
def test_allgather_broadcast_and_groups_of_each_type(ranks, size):
    ranks(size).run(body_move)


def body_scales():
    numbers = torch.tensor([1 + 2j, -3j], dtype=torch.complex64)
    result = hvd.allreduce(numbers, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    assert torch.equal(result, numbers * 1.5 * hvd.size())
    leaf = numbers.clone().requires_grad_()
    hvd.allreduce(leaf, op=hvd.Sum).backward(torch.tensor([1 - 2j, 1j]).conj())
    assert torch.equal(leaf.grad, torch.tensor([1 + 2j, -1j]) * hvd.size())
    if 'uint64' in DTYPES:
        large = torch.tensor([-1, 0]).view(torch.uint64)  # 2 ** 64 - 1.
        assert hvd.allreduce(large, op=hvd.Max).view(torch.int64).tolist() == [-1, 0]
        assert hvd.allreduce(large, op=hvd.Min).view(torch.int64).tolist() == [-1, 0]


def test_scales_gradients_and_large_numbers(ranks):
    ranks(2).run(body_scales)


def body_float8():
    for name in ('float8_e4m3fn', 'float8_e5m2'):
        if name not in DTYPES:
            continue
        dtype = DTYPES[name]
        sent, _ = hvd.Compression.fp16.compress(sample(0, dtype))
        assert sent.dtype == dtype  # As float16 it would be twice as long.
        everything = torch.arange(256, dtype=torch.uint8)
        mine = (everything if hvd.rank() == 0 else everything.roll(77)).view(dtype)
        wanted = everything.view(dtype).float() + everything.roll(77).view(dtype).float()
        result = hvd.allreduce(mine, op=hvd.Sum).float()
        assert torch.equal(result.isnan(), wanted.isnan())
        keeps = ~wanted.isnan()
        # What torch rounds it to, overflow included; before 2.12 it made NaN of that.
        if torch.tensor(1000.0).to(dtype).isnan():
            keeps &= wanted.abs() <= 448
        assert torch.equal(result[keeps], wanted.to(dtype).float()[keeps])


def test_sums_of_8_bit_floats_round_as_torch_does(ranks):
    ranks(2).run(body_float8)


def body_conjugate():
    number = torch.tensor([1 + 2j]).conj()
    assert number.is_conj() and number.is_contiguous()
    for call in (hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allgather,
                 lambda tensor: hvd.broadcast_(tensor, 0),
                 lambda tensor: hvd.grouped_allreduce([tensor, tensor])):
        with pytest.raises(ValueError, match='resolve_conj'):
            call(number)
    assert hvd.allreduce(number.resolve_conj(), op=hvd.Sum).item() == hvd.size() * (1 - 2j)
    parameter = torch.tensor([1 + 2j]).mul(hvd.rank() + 1).conj()
    hvd.broadcast_parameters([('parameter', parameter)], 0)
    assert parameter.item() == 1 - 2j


def test_conjugates_that_torch_keeps_beside_the_memory_are_not_lost(ranks):
    ranks(2).run(body_conjugate)


def body_optimizer():
    weight = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0))
    gradient = torch.tensor([2 + 1j, -4j])
    (weight * gradient.conj()).real.sum().mul(hvd.rank() + 1).backward()
    optimizer.step()
    assert torch.equal(weight.detach(), -gradient * (hvd.size() + 1) / 2)


def test_complex_parameters_are_trained(ranks):
    ranks(2).run(body_optimizer)


def test_the_table_names_every_type_of_the_package():
    table = rueda.types()
    assert {name: row['wire'] for name, row in table.items()} == _native.DTYPES
    floating = ['average', 'sum', 'adasum', 'min', 'max', 'product']
    assert table['float32'] == {'wire': 7, 'bytes': 4, 'reduce_ops': floating}
    assert table['int32'] == {'wire': 4, 'bytes': 4, 'reduce_ops': list(OPS)}
    assert table['complex128'] == {'wire': 16, 'bytes': 16,
                                   'reduce_ops': ['average', 'sum', 'product']}


def test_the_tool_prints_the_same_table_without_a_daemon():
    run = subprocess.run(['ruedactl', 'types', '--json'], check=True, capture_output=True)
    rows = json.loads(run.stdout)['types']
    assert {row.pop('name'): row for row in rows} == rueda.types()
