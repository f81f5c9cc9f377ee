# SPDX-License-Identifier: Apache-2.0
"""allreduce, allgather, broadcast, barrier and their grouped and asynchronous forms."""

import itertools

import pytest
import torch

import rueda.torch as hvd

SIZES = [2, 3, 4]
NAMES = ['uint8', 'int8', 'int16', 'int32', 'int64', 'float16', 'bfloat16', 'float32', 'float64']
DTYPES = [getattr(torch, name) for name in NAMES]


def sample(rank, dtype, shape=(3, 5)):
    """Small whole numbers, other ones on each rank, exact in every dtype."""
    count = 1
    for dim in shape:
        count *= dim
    return ((torch.arange(count) * (rank + 1) + rank) % 5 + 1).reshape(shape).to(dtype)


def samples(dtype, shape=(3, 5)):
    return [sample(rank, dtype, shape).to(torch.float64) for rank in range(hvd.size())]


def expected(op, dtype, shape=(3, 5)):
    """The result over all ranks, computed in float64."""
    stack = torch.stack(samples(dtype, shape))
    result = {hvd.Sum: stack.sum(0), hvd.Average: stack.sum(0) / hvd.size(),
              hvd.Min: stack.min(0)[0], hvd.Max: stack.max(0)[0],
              hvd.Product: stack.prod(0)}[op]
    return (result if dtype.is_floating_point else result.trunc()).to(dtype)


def close(result, wanted):
    assert result.dtype == wanted.dtype and result.shape == wanted.shape
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(wanted.dtype, 1e-6)
    assert torch.allclose(result.double(), wanted.double(), rtol=tolerance, atol=0), (
        result, wanted)


def body_allreduce_matrix():
    ops = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
    for dtype, op in itertools.product(DTYPES, ops):
        if op == hvd.Product and dtype in (torch.uint8, torch.int8):
            continue  # 5 ** 4 does not fit.
        tensor = sample(hvd.rank(), dtype)
        kept = tensor.clone()
        wanted = expected(op, dtype)
        name = f'{dtype}.{op}'
        close(hvd.allreduce(tensor, name=name, op=op), wanted)
        assert torch.equal(tensor, kept)
        close(hvd.synchronize(hvd.allreduce_async(tensor, name=name, op=op)), wanted)
        assert hvd.allreduce_(tensor, name=name, op=op) is tensor
        close(tensor, wanted)
        tensor = kept.clone()
        assert hvd.synchronize(hvd.allreduce_async_(tensor, name=name, op=op)) is tensor
        close(tensor, wanted)


@pytest.mark.row('T01', 'T02', 'T03', 'Q20', 'Q24', 'types.reduce')
@pytest.mark.parametrize('size', SIZES)
def test_allreduce_is_right_for_every_dtype_and_operation(ranks, size):
    ranks(size).run(body_allreduce_matrix)


def body_shapes():
    shapes = [(), (0,), (1,), (2, 0, 3), (7,), (1, 1, 1, 1, 1), (17, 33), (255, 257),
              (1 << 20,), (5, 300007)]
    for shape in shapes:
        close(hvd.allreduce(sample(hvd.rank(), torch.float32, shape), op=hvd.Sum),
              expected(hvd.Sum, torch.float32, shape))
        handle = hvd.allreduce_async(sample(hvd.rank(), torch.float32, shape), op=hvd.Sum)
        close(hvd.synchronize(handle), expected(hvd.Sum, torch.float32, shape))
        root = hvd.size() - 1
        assert torch.equal(hvd.broadcast(sample(hvd.rank(), torch.float32, shape), root),
                           sample(root, torch.float32, shape))


@pytest.mark.row('Q11', 'Q12')
@pytest.mark.parametrize('size', SIZES)
def test_scalars_empty_small_and_large_tensors(ranks, size):
    ranks(size).run(body_shapes)


def body_scales():
    size = hvd.size()
    ones = torch.ones(4)
    close(hvd.allreduce(ones, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0),
          ones * 1.5 * size)
    close(hvd.allreduce(ones, op=hvd.Average, prescale_factor=0.5), ones * 0.5)
    # Integers are scaled in float64 and truncated towards zero.
    numbers = torch.tensor([1, -1, 7, -7], dtype=torch.int32)
    close(hvd.allreduce(numbers, op=hvd.Sum, postscale_factor=0.5),
          (numbers.double() * size * 0.5).trunc().int())
    close(hvd.allreduce(numbers + hvd.rank()),
          (numbers.double() + (size - 1) / 2).trunc().int())


@pytest.mark.row('Q20', 'Q21')
@pytest.mark.parametrize('size', SIZES)
def test_scale_factors_and_integer_averages(ranks, size):
    ranks(size).run(body_scales)


def body_bool_and_uint16():
    flags = torch.tensor([hvd.rank() == 0, True, False])
    assert hvd.allreduce(flags, op=hvd.Max).tolist() == [True, True, False]
    assert hvd.allreduce(flags, op=hvd.Min).tolist() == [False, True, False]
    assert hvd.broadcast(flags, 1).tolist() == [False, True, False]
    if hasattr(torch, 'uint16'):
        numbers = torch.tensor([1, 60000], dtype=torch.int32).to(torch.uint16)
        assert hvd.allreduce(numbers, op=hvd.Max).to(torch.int32).tolist() == [1, 60000]


def test_bool_and_uint16(ranks):
    ranks(2).run(body_bool_and_uint16)


def body_compression():
    tensor = torch.tensor([1.0, 2.0, 0.1]) * (hvd.rank() + 1)
    result = hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.fp16)
    factor = sum(range(1, hvd.size() + 1))
    assert result.dtype == torch.float32
    assert torch.allclose(result, torch.tensor([1.0, 2.0, 0.1]) * factor, rtol=2e-3)
    whole = torch.tensor([1 << 40])
    assert hvd.allreduce(whole, compression=hvd.Compression.fp16).item() == 1 << 40


@pytest.mark.row('T01', 'T19')
def test_compression_to_fp16_converts_floating_tensors_only(ranks):
    ranks(3).run(body_compression)


def body_allgather():
    rank, size = hvd.rank(), hvd.size()
    for dtype in DTYPES + [torch.bool]:
        # Other numbers of rows on each rank; rank 0 gives none.
        gathered = hvd.allgather(torch.full((rank, 2, 3), rank % 2).to(dtype), name=str(dtype))
        wanted = torch.cat([torch.full((other, 2, 3), other % 2).to(dtype)
                            for other in range(size)])
        assert torch.equal(gathered, wanted)
    assert hvd.allgather(torch.empty(0, 4)).shape == (0, 4)
    handles = [hvd.allgather_async(torch.tensor([rank, k])) for k in range(20)]
    for k, handle in enumerate(handles):
        assert hvd.synchronize(handle).tolist() == [
            value for other in range(size) for value in (other, k)]


@pytest.mark.row('T06', 'Q12', 'types.move')
@pytest.mark.parametrize('size', SIZES)
def test_allgather_with_other_numbers_of_rows(ranks, size):
    ranks(size).run(body_allgather)


def body_broadcast():
    for dtype, root in itertools.product(DTYPES, range(hvd.size())):
        tensor = sample(hvd.rank(), dtype)
        kept = tensor.clone()
        wanted = sample(root, dtype)
        assert torch.equal(hvd.broadcast(tensor, root, name='b'), wanted)
        assert torch.equal(tensor, kept)
        assert torch.equal(hvd.synchronize(hvd.broadcast_async(tensor, root, name='b')), wanted)
        assert torch.equal(tensor, kept)
        assert hvd.broadcast_(tensor, root, name='b') is tensor and torch.equal(tensor, wanted)
        tensor = kept
        assert hvd.synchronize(hvd.broadcast_async_(tensor, root, name='b')) is tensor
        assert torch.equal(tensor, wanted)


@pytest.mark.row('T08', 'types.move')
@pytest.mark.parametrize('size', SIZES)
def test_broadcast_from_every_root(ranks, size):
    ranks(size).run(body_broadcast)


def body_grouped():
    rank, size = hvd.rank(), hvd.size()
    tensors = [sample(rank, torch.float32, (5,)), sample(rank, torch.float64, (2, 3)),
               sample(rank, torch.float32, ())]
    wanted = [expected(hvd.Sum, tensor.dtype, tuple(tensor.shape)) for tensor in tensors]
    for results in (hvd.grouped_allreduce(tensors, op=hvd.Sum, name='g'),
                    hvd.synchronize(hvd.grouped_allreduce_async(tensors, op=hvd.Sum, name='g')),
                    hvd.grouped_allreduce(tensors, op=hvd.Sum)):
        for result, value in zip(results, wanted):
            close(result, value)
    copies = [tensor.clone() for tensor in tensors]
    results = hvd.grouped_allreduce_(copies, op=hvd.Sum, name='g')
    assert all(result is copy for result, copy in zip(results, copies))
    copies = [tensor.clone() for tensor in tensors]
    hvd.synchronize(hvd.grouped_allreduce_async_(copies, op=hvd.Sum))
    for copy, value in zip(copies, wanted):
        close(copy, value)
    gathered = hvd.grouped_allgather([torch.tensor([rank]), torch.full((rank + 1,), 2.5)])
    assert gathered[0].tolist() == list(range(size))
    assert gathered[1].tolist() == [2.5] * sum(range(1, size + 1))
    gathered = hvd.synchronize(hvd.grouped_allgather_async([torch.tensor([rank, rank])]))
    assert len(gathered) == 1 and gathered[0].shape == (2 * size,)


@pytest.mark.row('T04', 'T07')
@pytest.mark.parametrize('size', SIZES)
def test_grouped_operations(ranks, size):
    ranks(size).run(body_grouped)


def body_handles():
    tensors = [torch.full((k % 50 + 1,), float(k)) for k in range(300)]
    handles = [hvd.allreduce_async_(tensor, name=f'h{k}', op=hvd.Sum)
               for k, tensor in enumerate(tensors)]
    assert all(type(handle) is int for handle in handles) and len(set(handles)) == 300
    for k in reversed(range(300)):
        result = hvd.synchronize(handles[k])
        assert result is tensors[k] and torch.all(result == k * hvd.size())
    assert hvd.synchronize(handles[0]) is None
    assert hvd.synchronize(10 ** 9) is None
    with pytest.raises(ValueError):
        hvd.poll(handles[0])


@pytest.mark.row('T14')
@pytest.mark.parametrize('size', SIZES)
def test_many_handles_in_any_order(ranks, size):
    ranks(size).run(body_handles)


def body_poll():
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(2), name='late')
        assert hvd.poll(handle) is False
        hvd.barrier()
        while not hvd.poll(handle):
            pass
        assert hvd.synchronize(handle).tolist() == [1.0, 1.0]
    else:
        hvd.barrier()
        hvd.allreduce(torch.ones(2), name='late')


@pytest.mark.row('T14')
def test_poll_is_false_until_all_ranks_came_and_a_call_may_block_elsewhere(ranks):
    ranks(2).run(body_poll)


def body_anonymous_names():
    from rueda import _session
    session = _session.current()
    assert session.name('allreduce', None) == 'allreduce.noname.0'
    assert session.name('allreduce', None) == 'allreduce.noname.1'
    assert session.name('broadcast', None) == 'broadcast.noname.0'
    assert session.name('allreduce', 'x') == 'allreduce.x'


@pytest.mark.row('names', 'Q51', 'Q61')
def test_anonymous_names_count_from_zero_in_each_session(ranks):
    for _ in range(2):
        ranks(2).run(body_anonymous_names)


def body_names():
    for name in ['a b', 'bn:1', 'bn:2', 'scope/weight', 'größe', 'x' * (1024 - len('allreduce.'))]:
        assert hvd.allreduce(torch.ones(1), name=name, op=hvd.Sum).item() == hvd.size()
    with pytest.raises(ValueError):
        hvd.allreduce(torch.ones(1), name='x' * 1100)
    # One name again and again, with other shapes and dtypes.
    for step in range(20):
        tensor = torch.ones(step + 1).to([torch.float32, torch.float64, torch.int32][step % 3])
        assert hvd.allreduce(tensor, name='again', op=hvd.Sum).sum() == (step + 1) * hvd.size()


@pytest.mark.row('Q52')
def test_names_are_opaque_and_may_be_used_again(ranks):
    ranks(3).run(body_names)


def body_mixed_calls():
    # What matters is the name, not whether a rank waits at once.
    for step in range(30):
        if (step + hvd.rank()) % 2:
            result = hvd.allreduce(torch.ones(1000), name='mixed', op=hvd.Sum)
        else:
            handle = hvd.allreduce_async(torch.ones(1000), name='mixed', op=hvd.Sum)
            result = hvd.synchronize(handle)
        assert torch.all(result == hvd.size())


def test_a_blocking_call_meets_an_asynchronous_one(ranks):
    ranks(2).run(body_mixed_calls)


def body_other_order():
    names = [f'o{k}' for k in range(12)]
    if hvd.rank() % 2:
        names.reverse()
    handles = {name: hvd.allreduce_async(torch.full((3,), float(name[1:])), name=name, op=hvd.Sum)
               for name in names}
    for name in names:
        assert torch.all(hvd.synchronize(handles[name]) == float(name[1:]) * hvd.size())


@pytest.mark.row('Q51')
def test_ranks_may_submit_in_another_order(ranks):
    ranks(4).run(body_other_order)


def body_deprecated_average():
    with pytest.deprecated_call():
        assert hvd.allreduce(torch.ones(1), average=False).item() == hvd.size()
    with pytest.deprecated_call():
        assert hvd.allreduce(torch.ones(1), average=True).item() == 1.0
    assert hvd.allreduce(torch.ones(1)).item() == 1.0  # Average is the default.
    with pytest.raises(ValueError):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)
    with pytest.raises(ValueError):
        hvd.allreduce(torch.ones(1), op=77)
    assert hvd.allreduce(torch.ones(1), op=hvd.Adasum).item() == 1.0
    assert hvd.allreduce(torch.ones(1), process_set=hvd.global_process_set).item() == 1.0
    with pytest.raises(ValueError):
        hvd.allreduce(torch.ones(1), process_set=[0])


@pytest.mark.row('T01')
def test_the_arguments_average_op_and_process_set(ranks):
    ranks(2).run(body_deprecated_average)


def body_gradients():
    rank, size = hvd.rank(), hvd.size()
    tensor = torch.tensor([1.0, 2.0], requires_grad=True)
    hvd.allreduce(tensor, op=hvd.Sum, name='a').backward(torch.tensor([1.0, 3.0]) * (rank + 1))
    total = sum(range(1, size + 1))
    assert tensor.grad.tolist() == [total, 3.0 * total]
    tensor = torch.ones(2, requires_grad=True)
    hvd.allreduce(tensor, prescale_factor=2.0).sum().backward()
    assert tensor.grad.tolist() == [2.0, 2.0]

    tensor = torch.ones(rank + 1, 2, requires_grad=True)
    gathered = hvd.allgather(tensor)
    weights = torch.arange(float(gathered.numel())).reshape(gathered.shape)
    (gathered * weights * (rank + 1)).sum().backward()
    first = sum(range(1, rank + 1))
    assert torch.allclose(tensor.grad, weights[first:first + rank + 1] * total / size)

    tensor = torch.ones(2, requires_grad=True)
    (hvd.broadcast(tensor, 1) * (rank + 1)).sum().backward()
    assert tensor.grad.tolist() == [total / size if rank == 1 else 0.0] * 2

    pair = [torch.ones(1, requires_grad=True), torch.ones(2, requires_grad=True)]
    first, second = hvd.grouped_allreduce(pair, op=hvd.Sum)
    (first.sum() + 2 * second.sum()).backward()
    assert pair[0].grad.tolist() == [size] and pair[1].grad.tolist() == [2.0 * size] * 2
    pair = [torch.ones(1, requires_grad=True), torch.ones(2, requires_grad=True)]
    first, second = hvd.grouped_allgather(pair)
    (first.sum() + 2 * second.sum()).backward()
    assert pair[0].grad.tolist() == [1.0] and pair[1].grad.tolist() == [2.0, 2.0]
    half = torch.ones(2, requires_grad=True)
    hvd.allreduce(half, op=hvd.Sum, compression=hvd.Compression.fp16).sum().backward()
    assert half.grad.dtype == torch.float32 and half.grad.tolist() == [size, size]
    with torch.no_grad():
        assert not hvd.allreduce(half).requires_grad


@pytest.mark.row('autograd.allreduce', 'autograd.allgather', 'autograd.broadcast')
@pytest.mark.parametrize('size', SIZES)
def test_gradients_of_the_operations(ranks, size):
    ranks(size).run(body_gradients)
