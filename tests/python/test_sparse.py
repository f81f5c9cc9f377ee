# SPDX-License-Identifier: Apache-2.0
"""sparse_allreduce_async: sparse COO tensors summed and averaged over ranks."""

import pytest
import torch

import rueda.torch as hvd


def sample(rank, dtype=torch.float32, coalesced=False, shape=(6, 3)):
    """Rows rank, rank + 1 and again rank: equal indices within a rank and between ranks."""
    rows = torch.tensor([[rank, rank + 1, rank]])
    values = (torch.arange(9).reshape(3, 3) + rank + 1).to(dtype)
    tensor = torch.sparse_coo_tensor(rows, values, shape)
    return tensor.coalesce() if coalesced else tensor


def body_values():
    for dtype in (torch.float32, torch.float64, torch.int64):
        for coalesced in (False, True):
            tensor = sample(hvd.rank(), dtype, coalesced)
            total = sum(sample(rank, dtype).to_dense() for rank in range(hvd.size()))
            finish = hvd.sparse_allreduce_async(tensor, name='x', op=hvd.Sum)
            result = finish()
            assert result.layout == torch.sparse_coo and result.dtype == dtype
            assert torch.equal(result.to_dense(), total)
            # What a rank has twice travels once.
            assert result._nnz() == 2 * hvd.size()
            if dtype.is_floating_point:
                mean = hvd.sparse_allreduce_async(tensor)().to_dense()
                assert torch.allclose(mean, total / hvd.size())


@pytest.mark.row('T05')
@pytest.mark.parametrize('size', [1, 2, 3])
def test_entries_of_all_ranks_count_together(ranks, size):
    ranks(size).run(body_values)


def body_shapes():
    # One rank has nothing; an entry is a number, a row or a matrix; several at once.
    cases = [((4, 3), 2), ((4, 3), 1), ((5, 2, 2), 1), ((5, 2, 2), 3)]
    started = []
    for number, (shape, sparse_dims) in enumerate(cases):
        dense = torch.zeros(shape)
        if hvd.rank() != 1:
            dense[hvd.rank()] = hvd.rank() + 1
        tensor = dense.to_sparse(sparse_dims)
        started.append((shape, hvd.sparse_allreduce_async(tensor, name=str(number), op=hvd.Sum)))
    for shape, finish in reversed(started):
        wanted = torch.zeros(shape)
        for rank in range(hvd.size()):
            if rank != 1:
                wanted[rank] = rank + 1
        assert torch.equal(finish().to_dense(), wanted)


@pytest.mark.parametrize('size', [2, 3])
def test_any_sparse_shape_and_a_rank_without_entries(ranks, size):
    ranks(size).run(body_shapes)


def body_errors():
    with pytest.raises(ValueError, match='needs a sparse COO tensor, not torch.strided'):
        hvd.sparse_allreduce_async(torch.ones(2))
    with pytest.raises(ValueError, match='needs a sparse COO tensor, not list'):
        hvd.sparse_allreduce_async([1.0])
    with pytest.raises(ValueError, match='only be averaged or summed'):
        hvd.sparse_allreduce_async(sample(0), op=hvd.Max)
    finish = hvd.sparse_allreduce_async(sample(0, shape=(6 + hvd.rank(), 3)), name='rows')
    with pytest.raises(hvd.MismatchError, match=r'rank 0 has shape \[6, 3\] with 1 sparse '
                                                r'dimensions, but rank 1 has shape \[7, 3\]'):
        finish()
    finish = hvd.sparse_allreduce_async(sample(0).to_dense().to_sparse(1 + hvd.rank()), name='dims')
    with pytest.raises(hvd.MismatchError):
        finish()
    hvd.barrier()


@pytest.mark.row('T05')
def test_what_is_refused_and_that_the_session_goes_on(ranks):
    ranks(2).run(body_errors)


def body_embedding():
    torch.manual_seed(0)
    model = torch.nn.Embedding(50, 4, sparse=True)
    with torch.no_grad():
        dense = torch.nn.Embedding.from_pretrained(model.weight.clone(), freeze=False)
    words = torch.randint(0, 50, (20,), generator=torch.Generator().manual_seed(hvd.rank()))
    model(words).pow(2).sum().backward()
    dense(words).pow(2).sum().backward()
    sparse = hvd.sparse_allreduce_async(model.weight.grad, name='embedding')()
    assert sparse._nnz() < 50
    assert torch.allclose(sparse.to_dense(), hvd.allreduce(dense.weight.grad), atol=1e-6)


@pytest.mark.row('Q43')
def test_the_gradient_of_an_embedding(ranks):
    ranks(2).run(body_embedding)
