# SPDX-License-Identifier: Apache-2.0
"""Ranks with uneven data, and Adasum."""

import pytest
import torch

import rueda.torch as hvd
from rueda import _native, _session
from rueda._operations import Entry
from rueda.torch.ops import in_set


def body_uneven():
    seen = []
    for step in range(2 * (hvd.rank() + 1)):
        seen.append(hvd.allreduce(torch.ones(3), name=f'step.{step}').mean().item())
    return seen, hvd.join()


@pytest.mark.row('T12', 'Q30')
def test_an_average_still_divides_by_all_ranks(ranks):
    results = ranks(2).run(body_uneven)
    assert results[0] == [[1.0, 1.0], 1]
    assert results[1] == [[1.0, 1.0, 0.5, 0.5], 1]


def body_kinds():
    if hvd.rank() == 1:
        return hvd.join()
    ones = torch.full((2,), 3.0)
    assert hvd.allreduce(ones, op=hvd.Min).tolist() == [0.0, 0.0]
    assert hvd.allreduce(ones, op=hvd.Product).tolist() == [0.0, 0.0]
    assert hvd.allreduce(ones, op=hvd.Adasum).tolist() == [3.0, 3.0]
    for call in (lambda: hvd.allgather(ones), lambda: hvd.broadcast(ones, 0),
                 lambda: hvd.alltoall(ones), lambda: hvd.reducescatter(ones)):
        with pytest.raises(hvd.HorovodInternalError, match='rank 1 has joined'):
            call()
    hvd.barrier()
    return hvd.join(device=-1)


@pytest.mark.row('Q30')
def test_zeros_and_errors_while_somebody_has_joined(ranks):
    assert ranks(2).run(body_kinds) == [0, 0]


def body_left_out():
    if hvd.rank() == 1:
        return hvd.join(left_out=True)
    ones = torch.full((3,), 3.0)
    assert hvd.allreduce(ones).tolist() == [3.0] * 3
    assert hvd.allreduce(ones, op=hvd.Min).tolist() == [3.0] * 3
    assert len(hvd.allgather(ones)) == 6
    rows, received = hvd.alltoall(ones, [1, 1, 1])
    assert received.tolist() == [1, 0, 1] and len(rows) == 2
    assert hvd.broadcast(ones * hvd.rank(), 2).tolist() == [6.0] * 3
    with pytest.raises(hvd.HorovodInternalError, match='its root, has joined'):
        hvd.broadcast(ones, 1)
    return hvd.join(left_out=True)


def test_left_out_ranks(ranks):
    assert len(set(ranks(3).run(body_left_out))) == 1


def body_training():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                         named_parameters=model.named_parameters())
    for epoch in range(2):
        for step in range(3 + 2 * hvd.rank()):
            optimizer.zero_grad()
            generator = torch.Generator().manual_seed(100 * epoch + 10 * step + hvd.rank())
            model(torch.rand(2, 4, generator=generator)).sum().backward()
            optimizer.step()
        last = hvd.join()
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    hvd.assert_in_sync(model)
    return last


@pytest.mark.row('Q30')
def test_training_with_uneven_data(ranks):
    assert ranks(3).run(body_training) == [2, 2, 2]


def adasum(tensors):
    """The definition, in float64."""
    if len(tensors) == 1:
        return tensors[0]
    half = 1
    while half * 2 < len(tensors):
        half *= 2
    a, b = adasum(tensors[:half]), adasum(tensors[half:])
    both = (a * b).sum()
    return (1 - both / (2 * (a * a).sum())) * a + (1 - both / (2 * (b * b).sum())) * b


def inputs(size, dtype, count=1000):
    return [torch.randn(count, generator=torch.Generator().manual_seed(rank)).to(dtype)
            for rank in range(size)]


def body_adasum(name):
    dtype = getattr(torch, name)
    own = inputs(hvd.size(), dtype)
    wanted = adasum([one.double() for one in own])
    result = hvd.allreduce(own[hvd.rank()], op=hvd.Adasum)
    assert result.dtype == dtype
    tolerance = {'float16': 1e-2, 'bfloat16': 1e-1, 'float32': 1e-5, 'float64': 1e-12}[name]
    assert torch.allclose(result.double(), wanted, rtol=tolerance, atol=tolerance)
    grouped = hvd.grouped_allreduce([own[hvd.rank()], own[hvd.rank()][:10]], op=hvd.Adasum)
    assert torch.equal(grouped[0], result)  # Each tensor for itself, fused or not.
    short = adasum([one[:10].double() for one in own])
    assert torch.allclose(grouped[1].double(), short, rtol=tolerance, atol=tolerance)


@pytest.mark.row('Q70')
@pytest.mark.parametrize('size', [1, 2, 3, 4])
@pytest.mark.parametrize('name', ['float16', 'bfloat16', 'float32', 'float64'])
def test_adasum(ranks, size, name):
    ranks(size).run(body_adasum, name)


def body_adasum_refused():
    one = torch.ones(2, dtype=torch.int32)
    with pytest.raises(ValueError, match='int32 has no adasum'):
        hvd.allreduce(one, op=hvd.Adasum)
    with pytest.raises(ValueError, match='adasum is for allreduce'):
        hvd.reducescatter(one.float(), op=hvd.Adasum)
    with pytest.raises(NotImplementedError, match='Adasum'):
        hvd.allreduce(one.float(), op=hvd.Adasum, process_set=hvd.ProcessSet([0]))


@pytest.mark.row('Q70')
def test_what_adasum_cannot_do(ranks):
    ranks(2).run(body_adasum_refused)


def body_priorities():
    names = [f'layer.{index}' for index in range(6)]
    handles = [hvd.allreduce_async_(torch.ones(1000), name=name, op=hvd.Sum, priority=-index)
               for index, name in enumerate(names)]
    return [hvd.synchronize(handle).mean().item() for handle in handles]


def test_set_and_priority_are_told_to_the_library():
    # That results do not change would hold as well if nobody had looked at the priority.
    operation = Entry(('name',)).operations[0]
    kind = (_native.ALLREDUCE, _native.DTYPES['float32'], _native.SUM, 0, None)
    for members, priority in (((3, 0, 2), -7), ((0, 0, 2), 5), ((0, 0, 2), 0), ((4, 0, 2), 0)):
        operation.fill(in_set(kind, _session.Members(*members), priority), 0, 0, ())
        assert (operation.struct.process_set, operation.struct.priority) == (members[0], priority)


def test_priorities_change_no_result(ranks):
    assert ranks(2).run(body_priorities) == [[2.0] * 6] * 2
