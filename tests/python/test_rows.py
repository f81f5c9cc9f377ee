# SPDX-License-Identifier: Apache-2.0
"""alltoall and reducescatter with their grouped and asynchronous forms, and their gradients."""

import itertools

import pytest
import torch

import rueda.torch as hvd

DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16,
          torch.bfloat16, torch.float32, torch.float64, torch.bool]


def row_block(giver, receiver, rows, dtype=torch.float32, width=2):
    """The rows that `giver` has for `receiver`: small numbers that tell both, exact everywhere."""
    block = torch.full((rows, width), (giver * 3 + receiver) % 5 + 1)
    return (block % 2 == 0) if dtype == torch.bool else block.to(dtype)


def uneven(giver, receiver):
    """Rows from one rank to another; zero for some."""
    return (giver * 2 + receiver * 3) % 4


def body_alltoall(dtype_numbers, splits_kind):
    rank, size = hvd.rank(), hvd.size()
    own = [uneven(rank, other) for other in range(size)]
    splits = {'list': own, 'int32': torch.tensor(own, dtype=torch.int32),
              'int64': torch.tensor(own)}[splits_kind]
    received = [uneven(other, rank) for other in range(size)]
    for dtype in [DTYPES[number] for number in dtype_numbers]:
        tensor = torch.cat([row_block(rank, other, own[other], dtype) for other in range(size)]
                           + [row_block(rank, 99, rank, dtype)])  # The rest goes to nobody.
        wanted = torch.cat([row_block(other, rank, received[other], dtype)
                            for other in range(size)])
        output, counts = hvd.alltoall(tensor, splits, name=f'sync.{dtype}')
        assert torch.equal(output, wanted) and output.dtype == dtype
        assert counts.dtype == torch.int32 and counts.tolist() == received
        output, counts = hvd.synchronize(hvd.alltoall_async(tensor, splits=splits))
        assert torch.equal(output, wanted) and counts.tolist() == received


@pytest.mark.row('T09', 'Q12', 'Q13', 'types.move')
@pytest.mark.parametrize('size', [2, 3, 4])
def test_alltoall_with_splits(ranks, size):
    ranks(size).run(body_alltoall, list(range(len(DTYPES))), 'list')


@pytest.mark.row('Q13')
@pytest.mark.parametrize('kind', ['int32', 'int64'])
def test_splits_may_be_a_tensor(ranks, kind):
    ranks(2).run(body_alltoall, [7], kind)


def body_alltoall_even():
    rank, size = hvd.rank(), hvd.size()
    tensor = torch.arange(2 * size, dtype=torch.float32) + 100 * rank
    wanted = torch.cat([torch.arange(2 * rank, 2 * rank + 2) + 100 * other
                        for other in range(size)]).float()
    assert torch.equal(hvd.alltoall(tensor), wanted)
    output, counts = hvd.synchronize(hvd.alltoall_async(tensor))  # A pair all the same.
    assert torch.equal(output, wanted) and counts.tolist() == [2] * size
    for shape in [(0,), (0, 4), (size, 0)]:
        assert hvd.alltoall(torch.empty(shape)).shape == shape
    pairs = hvd.grouped_alltoall([tensor, tensor + 1], [[2] * size] * 2, name='both')
    assert torch.equal(pairs[0][0], wanted) and torch.equal(pairs[1][0], wanted + 1)
    assert pairs[1][1].tolist() == [2] * size
    one, two = hvd.grouped_alltoall([tensor, tensor + 1])
    assert torch.equal(one, wanted) and torch.equal(two, wanted + 1)


@pytest.mark.row('T09', 'Q12')
@pytest.mark.parametrize('size', [1, 2, 3])
def test_alltoall_without_splits_deals_out_evenly(ranks, size):
    ranks(size).run(body_alltoall_even)


def body_wrong_splits():
    tensor = torch.zeros(4, 2)
    cases = [([4], '1 splits for 2 ranks'),
             ([3, 2], 'split 1 is 2, but only 1 of the 4 rows are left'),
             ([-1, 2], 'split 0 is -1, but only 4 of the 4 rows are left'),
             ([1.0, 2], 'splits must be integers, not '),
             (torch.ones(2), 'splits must be a 1-d tensor of int32, not of torch.float32'),
             (torch.ones(1, 2, dtype=torch.int32), r'with shape \(1, 2\)')]
    for splits, text in cases:
        for call in (hvd.alltoall, hvd.alltoall_async):
            with pytest.raises(ValueError, match=text):
                call(tensor, splits)
    with pytest.raises(ValueError, match='3 rows cannot be dealt out evenly to 2 ranks'):
        hvd.alltoall(torch.zeros(3))
    with pytest.raises(hvd.HorovodInternalError, match='a rank-zero tensor, which has no rows'):
        hvd.alltoall(torch.tensor(1.0))
    with pytest.raises(ValueError, match='1 lists of splits for 2 tensors'):
        hvd.grouped_alltoall([tensor, tensor], [[2, 2]])
    with pytest.raises(hvd.MismatchError, match='Mismatched ALLTOALL tensor shapes'):
        hvd.alltoall(torch.zeros(2, 2 + hvd.rank()), name='shapes')
    hvd.barrier()


@pytest.mark.row('Q01', 'Q13')
def test_wrong_splits_are_refused_and_the_session_goes_on(ranks):
    ranks(2).run(body_wrong_splits)


def body_alltoall_gradient():
    rank, size = hvd.rank(), hvd.size()
    own = [uneven(rank, other) for other in range(size)]
    tensor = torch.ones(sum(own) + 2, 3, requires_grad=True)
    output, received = hvd.alltoall(tensor, own)
    assert not received.requires_grad
    # What this rank makes of each row that it got comes back to the giver.
    (output * (rank + 1)).sum().backward()
    wanted = torch.cat([torch.full((own[other], 3), other + 1.0) for other in range(size)]
                       + [torch.zeros(2, 3)])
    assert torch.equal(tensor.grad, wanted)
    even = torch.ones(size, requires_grad=True)
    (hvd.alltoall(even) * (rank + 1)).sum().backward()
    assert torch.equal(even.grad, torch.arange(1.0, size + 1))


@pytest.mark.row('autograd.alltoall')
@pytest.mark.parametrize('size', [2, 3])
def test_the_gradient_of_alltoall_returns_by_the_received_splits(ranks, size):
    ranks(size).run(body_alltoall_gradient)


def shares(tensor):
    """This rank's rows of a whole result."""
    rank, size = hvd.rank(), hvd.size()
    each, more = divmod(tensor.shape[0], size)
    begin = rank * each + min(rank, more)
    return tensor[begin:begin + each + (rank < more)]


def whole(rank, dtype, rows):
    values = (torch.arange(rows * 3) * (rank + 1) + rank) % 4 + 1
    return values.reshape(rows, 3).to(dtype)


def body_reducescatter(rows):
    ops = [hvd.Average, hvd.Sum, hvd.Min, hvd.Max, hvd.Product]
    for dtype, op in itertools.product(DTYPES[:-1], ops):
        if op == hvd.Product and dtype in (torch.uint8, torch.int8):
            continue  # 4 ** 4 does not fit.
        stack = torch.stack([whole(rank, dtype, rows).double() for rank in range(hvd.size())])
        result = {hvd.Sum: stack.sum(0), hvd.Average: stack.mean(0), hvd.Min: stack.min(0)[0],
                  hvd.Max: stack.max(0)[0], hvd.Product: stack.prod(0)}[op]
        wanted = shares(result if dtype.is_floating_point else result.trunc()).to(dtype)
        tensor = whole(hvd.rank(), dtype, rows)
        for output in (hvd.reducescatter(tensor, name=f'{dtype}.{op}', op=op),
                       hvd.synchronize(hvd.reducescatter_async(tensor, op=op))):
            assert output.dtype == dtype and output.shape == wanted.shape
            tolerance = {torch.float16: 2e-3, torch.bfloat16: 1e-2}.get(dtype, 1e-6)
            assert torch.allclose(output.double(), wanted.double(), rtol=tolerance, atol=0)
        assert torch.equal(tensor, whole(hvd.rank(), dtype, rows))


@pytest.mark.row('T10', 'Q12', 'Q14', 'types.reduce')
@pytest.mark.parametrize('size, rows', [(1, 3), (2, 4), (3, 7), (4, 2), (3, 0)])
def test_reducescatter_gives_each_rank_its_rows(ranks, size, rows):
    ranks(size).run(body_reducescatter, rows)


def body_reducescatter_rest():
    tensor = whole(hvd.rank(), torch.float32, 5)
    total = sum(whole(rank, torch.float32, 5) for rank in range(hvd.size()))
    scaled = hvd.reducescatter(tensor, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0)
    assert torch.equal(scaled, shares(2 * total))
    half = hvd.reducescatter(tensor, compression=hvd.Compression.fp16, op=hvd.Sum)
    assert half.dtype == torch.float32 and torch.equal(half, shares(total))
    both = hvd.grouped_reducescatter([tensor, 2 * tensor], op=hvd.Sum)
    assert torch.equal(both[0], shares(total)) and torch.equal(both[1], shares(2 * total))
    both = hvd.synchronize(hvd.grouped_reducescatter_async([tensor, tensor.double()], op=hvd.Sum))
    assert torch.equal(both[1], shares(total.double()))
    with pytest.raises(hvd.HorovodInternalError, match='a rank-zero tensor, which has no rows'):
        hvd.reducescatter(torch.tensor(1.0))
    with pytest.raises(ValueError, match='adasum is for allreduce'):
        hvd.reducescatter(tensor, op=hvd.Adasum)
    with pytest.raises(hvd.MismatchError, match='Mismatched reduction operation'):
        hvd.reducescatter(tensor, name='op', op=hvd.Sum if hvd.rank() else hvd.Average)
    with pytest.raises(hvd.MismatchError, match='Mismatched REDUCESCATTER tensor shapes'):
        hvd.reducescatter(torch.zeros(2 + hvd.rank()), name='rows')
    hvd.barrier()


@pytest.mark.row('T10', 'T11', 'Q14')
@pytest.mark.parametrize('size', [2, 3])
def test_scales_compression_groups_and_refusals_of_reducescatter(ranks, size):
    ranks(size).run(body_reducescatter_rest)


def body_reducescatter_gradient():
    rank, size = hvd.rank(), hvd.size()
    rows = size + 1  # Rank 0 gets two.
    for op, factor in ((hvd.Sum, size), (hvd.Average, 1)):
        for prescale, postscale in ((1.0, 1.0), (0.5, 3.0)):
            tensor = torch.ones(rows, 2, requires_grad=True)
            output = hvd.reducescatter(tensor, op=op, prescale_factor=prescale,
                                       postscale_factor=postscale)
            (output * (rank + 1)).sum().backward()
            owners = torch.tensor([0] + list(range(size)), dtype=torch.float32) + 1
            wanted = owners.reshape(-1, 1).expand(rows, 2) * factor * prescale * postscale
            assert torch.allclose(tensor.grad, wanted)
    tensors = [torch.ones(size, 2, requires_grad=True), torch.ones(size, requires_grad=True)]
    outputs = hvd.grouped_reducescatter(tensors, op=hvd.Average)
    (outputs[0].sum() * (rank + 1) + outputs[1].sum()).backward()
    assert torch.equal(tensors[0].grad, torch.arange(1.0, size + 1).reshape(-1, 1).expand(size, 2))
    assert torch.equal(tensors[1].grad, torch.ones(size))


@pytest.mark.row('autograd.reducescatter')
@pytest.mark.parametrize('size', [2, 3])
def test_the_gradient_of_reducescatter_is_gathered(ranks, size):
    ranks(size).run(body_reducescatter_gradient)
