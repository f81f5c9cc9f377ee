# SPDX-License-Identifier: Apache-2.0
"""What holds for all operations: order of checks, texts, rounding, names, gradients."""

import itertools
import time

import pytest
import torch

import rueda.torch as hvd
from rueda import _native, _session

RANKS = [2, 3]


def mismatch(call):
    """The text of the MismatchError that all ranks get; the session goes on."""
    with pytest.raises(hvd.HorovodInternalError) as caught:
        call()
    assert isinstance(caught.value, hvd.MismatchError)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum, name='next').item() == hvd.size()
    return str(caught.value)


def body_order_of_checks():
    other = int(hvd.rank() == 1)
    # From the k-th on, all of these differ on rank 1; the k-th is what ranks are told of.
    values = [('dtype', torch.float32, torch.int64), ('shape', (3, 2), (2, 2)),
              ('prescale', 0.5, 0.25), ('op', hvd.Sum, hvd.Max)]
    texts = [('data types', 'float32', 'int64'), ('ALLREDUCE tensor shapes', '[3, 2]', '[2, 2]'),
             ('prescale and/or postscale factors', 'prescale 0.5', 'prescale 0.25'),
             ('reduction operation', 'sum', 'max')]
    for first, (what, one, two) in enumerate(texts):
        chosen = {name: theirs if other and index >= first else ours
                  for index, (name, ours, theirs) in enumerate(values)}
        text = mismatch(lambda: hvd.allreduce(
            torch.ones(chosen['shape'], dtype=chosen['dtype']), name='x', op=chosen['op'],
            prescale_factor=chosen['prescale']))
        assert text.startswith(f"Mismatched {what} for 'allreduce.x': "), text
        assert f'rank 0 has {one}' in text and f'rank 1 has {two}' in text, text
    for call, what, one, two in (
            (lambda: hvd.broadcast(torch.ones(2), other, name='x'),
             'BROADCAST root ranks', 'root 0', 'root 1'),
            (lambda: hvd.broadcast(torch.ones(2 + other), 0, name='x'),
             'BROADCAST tensor shapes', '[2]', '[3]'),
            (lambda: hvd.allgather(torch.ones(other, 2 + other), name='x'),
             'ALLGATHER tensor shapes', '[*, 2]', '[*, 3]'),
            (lambda: hvd.allgather(torch.ones(1, 2 + other).to([torch.int8, torch.uint8][other]),
                                   name='x'), 'data types', 'int8', 'uint8')):
        text = mismatch(call)
        assert text.startswith(f'Mismatched {what} for '), text
        assert f'rank 0 has {one}' in text and f'rank 1 has {two}' in text, text


@pytest.mark.row('Q10', 'Q02', 'Q03')
@pytest.mark.parametrize('size', RANKS)
def test_ranks_are_told_the_first_thing_that_differs_with_both_values(ranks, size):
    ranks(size).run(body_order_of_checks)


def body_kinds():
    tensor = torch.ones(2)
    address = tensor.data_ptr()
    kind = [_native.ALLREDUCE, _native.BROADCAST][hvd.rank() == 1]
    operation = (kind, _native.DTYPES['float32'], _native.SUM, 0, None)
    text = mismatch(lambda: _session.current().run('same', operation, address, address, (2,)))
    assert text.startswith("Mismatched operations for 'same': rank 0 has allreduce, but rank 1 has "
                           'broadcast'), text
    # Before the kind comes the data type.
    dtype = ['float32', 'int32'][hvd.rank() == 1]
    operation = (kind, _native.DTYPES[dtype], _native.SUM, 0, None)
    text = mismatch(lambda: _session.current().run('same', operation, address, address, (2,)))
    assert text.startswith('Mismatched data types for '), text


@pytest.mark.row('Q10')
def test_different_operations_under_one_name(ranks):
    ranks(2).run(body_kinds)


def body_average():
    calls = [hvd.allreduce, hvd.allreduce_, hvd.allreduce_async, hvd.allreduce_async_]
    grouped = [hvd.grouped_allreduce, hvd.grouped_allreduce_, hvd.grouped_allreduce_async,
               hvd.grouped_allreduce_async_]
    for call in calls + grouped:
        tensor = torch.ones(2)
        with pytest.warns(DeprecationWarning, match='average is deprecated') as caught:
            result = call([tensor] if call in grouped else tensor, average=False)
        assert [one.filename for one in caught] == [__file__], call
        result = hvd.synchronize(result) if isinstance(result, int) else result
        result = result[0] if call in grouped else result
        assert result.tolist() == [hvd.size()] * 2


def test_the_warning_of_average_points_at_the_caller(ranks):
    # It pointed into the package, so that by default nobody saw it.
    ranks(2).run(body_average)


def body_scalars():
    scalar = torch.tensor(float(hvd.rank() + 1))
    assert hvd.allreduce(scalar, op=hvd.Sum) == sum(range(1, hvd.size() + 1))
    assert hvd.broadcast(scalar, 1) == 2 and hvd.broadcast(scalar, 1).dim() == 0
    for call in (hvd.allgather, hvd.alltoall, hvd.reducescatter,
                 lambda tensor: hvd.synchronize(hvd.allgather_async(tensor)),
                 lambda tensor: hvd.grouped_allgather([torch.ones(1), tensor]),
                 lambda tensor: hvd.synchronize(hvd.grouped_reducescatter_async([tensor]))):
        with pytest.raises(hvd.HorovodInternalError, match='a rank-zero tensor'):
            call(scalar)
    hvd.barrier()


@pytest.mark.row('Q11')
def test_scalars_have_no_rows(ranks):
    ranks(2).run(body_scalars)


def body_group_names():
    tensors = [torch.ones(2), torch.ones(3 + hvd.rank()), torch.ones(4)]
    text = mismatch(lambda: hvd.grouped_allreduce(tensors, name='g'))
    assert "for 'grouped_allreduce.g_2of3': " in text, text
    text = mismatch(lambda: hvd.grouped_allgather(
        [torch.ones(1), torch.ones(1, 1 + hvd.rank())], name='h'))
    assert "for 'grouped_allgather.h_2of2': " in text, text
    if hvd.rank() == 0:
        handle = hvd.grouped_allreduce_async([torch.ones(2), torch.ones(2).double()], op=hvd.Sum)
        assert not hvd.poll(handle)
        hvd.barrier()
    else:
        hvd.barrier()
        handle = hvd.grouped_allreduce_async([torch.ones(2), torch.ones(2).double()], op=hvd.Sum)
    assert [tensor.tolist() for tensor in hvd.synchronize(handle)] == [[2.0, 2.0]] * 2


@pytest.mark.row('Q50', 'names')
def test_members_of_a_group_have_names_of_their_own(ranks):
    ranks(2).run(body_group_names)


def body_float16():
    # A sum in float16 would stay at 2048; one rounding at the end gives 2052.
    own = torch.tensor([2048.0 if hvd.rank() == 0 else 1.0]).half()
    wanted = torch.tensor([2048.0 + hvd.size() - 1]).half()
    assert torch.equal(hvd.allreduce(own, op=hvd.Sum), wanted)
    # Neither the sum nor a scaled value has to fit into float16 on the way.
    large = torch.full((3,), 40000.0).half()
    assert torch.equal(hvd.allreduce(large), large)
    assert torch.equal(hvd.allreduce(large, op=hvd.Sum, prescale_factor=1024.0,
                                     postscale_factor=1.0 / 1024 / hvd.size()), large)


@pytest.mark.row('Q22')
def test_float16_is_summed_and_scaled_in_float32(ranks):
    ranks(4).run(body_float16)


def body_determinism():
    values = torch.randn(5000, generator=torch.Generator().manual_seed(hvd.rank()))
    wanted = hvd.allreduce(values)
    for attempt in range(6):
        time.sleep(0.002 * ((hvd.rank() * 7 + attempt * 5) % 4))  # Other ranks come first.
        if attempt % 3 == 0:
            result = hvd.allreduce(values, name='d')
        elif attempt % 3 == 1:
            result = hvd.synchronize(hvd.allreduce_async(values, name='d'))
        else:
            result = hvd.grouped_allreduce([torch.ones(3), values, torch.ones(7)])[1]
        assert torch.equal(result, wanted)
    assert hvd.allgather_object(wanted.tolist()) == [wanted.tolist()] * hvd.size()


@pytest.mark.row('Q25')
def test_the_order_of_arrival_changes_no_bit(ranks):
    ranks(3).run(body_determinism)


def body_failed_handle():
    handle = hvd.allreduce_async(torch.ones(1 + hvd.rank()), name='x')
    with pytest.raises(hvd.HorovodInternalError):
        hvd.synchronize(handle)
    assert hvd.synchronize(handle) is None
    first = hvd.allreduce_async(torch.ones(1))
    hvd.synchronize(first)
    hvd.barrier()
    hvd.shutdown()
    hvd.init()
    handles = [hvd.allreduce_async(torch.ones(1)) for _ in range(3)]
    assert handles == [0, 1, 2]  # As in a first session.
    for handle in handles:
        assert hvd.synchronize(handle).item() == 1.0


@pytest.mark.row('T14', 'Q61')
def test_a_failed_handle_is_used_up_and_a_new_session_counts_from_the_start(ranks):
    ranks(2).run(body_failed_handle)


def body_barrier():
    begin = time.monotonic()
    if hvd.rank() == 1:
        time.sleep(0.3)
    assert hvd.barrier() is None
    assert time.monotonic() - begin > 0.29


@pytest.mark.row('T13')
def test_a_barrier_waits_for_all(ranks):
    ranks(2).run(body_barrier)


def body_types():
    rank, size = hvd.rank(), hvd.size()
    names = ['int32', 'int64', 'float16', 'float32', 'float64']
    tensors = [torch.full((size,), rank + 1).to(getattr(torch, name)) for name in names]
    total = size * (size + 1) // 2
    for results in (hvd.grouped_allreduce(tensors, op=hvd.Sum),
                    hvd.grouped_reducescatter(tensors, op=hvd.Sum)):
        for result, tensor in zip(results, tensors):
            assert result.dtype == tensor.dtype and torch.all(result == total)
    for name in ('uint8', 'int8', 'int16', *names):
        tensor = torch.full((size,), rank + 1).to(getattr(torch, name))
        for result in (hvd.allgather(tensor[:1]), hvd.alltoall(tensor)):
            assert result.dtype == tensor.dtype and result.tolist() == list(range(1, size + 1))
        assert hvd.broadcast(tensor, 1).tolist() == [2] * size


@pytest.mark.row('types.reduce', 'types.move')
def test_every_type_of_horovod(ranks):
    ranks(3).run(body_types)


def body_gradients(kinds):
    rank, size = hvd.rank(), hvd.size()
    incoming = torch.tensor([1.0, -2.0]) * (rank + 1)
    for op, grouped, scale in itertools.product(
            (hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product), (False, True), (1.0, 0.5)):
        tensor = torch.tensor([1.0, 2.0], requires_grad=True)
        scales = {'prescale_factor': scale, 'postscale_factor': 3.0}
        if grouped:
            output = hvd.grouped_allreduce([tensor], op=op, **scales)[0]
        else:
            output = hvd.allreduce(tensor, op=op, **scales)
        output.backward(incoming)
        # Also of Min, Max and Product, of which it is not the derivative.
        assert torch.equal(tensor.grad, hvd.allreduce(incoming, op=op, **scales)), (op, grouped)
    if kinds == 'int':
        for call in (hvd.allreduce, hvd.allgather, hvd.reducescatter, hvd.alltoall,
                     lambda number: hvd.broadcast(number, 0)):
            assert not call(torch.ones(size, dtype=torch.int32)).requires_grad


@pytest.mark.row('autograd.allreduce', 'autograd.integers')
@pytest.mark.parametrize('size', RANKS)
def test_the_gradient_of_a_reduction_is_the_same_reduction(ranks, size):
    ranks(size).run(body_gradients, 'int')


def body_reducescatter_gradients():
    rank, size = hvd.rank(), hvd.size()
    tensors = [torch.ones(size + 1, 2, requires_grad=True),
               torch.ones(size, dtype=torch.float64, requires_grad=True)]
    outputs = hvd.grouped_reducescatter(tensors, op=hvd.Sum, prescale_factor=0.5,
                                        postscale_factor=3.0)
    (outputs[0].sum() * (rank + 1) + outputs[1].sum() * (rank + 1)).backward()
    owners = torch.tensor([1.0] + list(range(1, size + 1)))
    assert torch.equal(tensors[0].grad, (owners * size * 1.5).reshape(-1, 1).expand(-1, 2))
    assert torch.equal(tensors[1].grad, owners[1:].double() * size * 1.5)
    # Rows differ from rank to rank, rank 0 gives none, in a group of two.
    pair = [torch.ones(rank, 2, requires_grad=True), torch.ones(1, requires_grad=True)]
    first, second = hvd.grouped_allgather(pair)
    (first.sum() * (rank + 1) + second.sum()).backward()
    assert torch.equal(pair[0].grad, torch.full((rank, 2), (size + 1) / 2))
    assert torch.equal(pair[1].grad, torch.ones(1))


@pytest.mark.row('autograd.reducescatter', 'autograd.allgather')
@pytest.mark.parametrize('size', RANKS)
def test_gradients_of_groups_with_uneven_rows(ranks, size):
    ranks(size).run(body_reducescatter_gradients)
