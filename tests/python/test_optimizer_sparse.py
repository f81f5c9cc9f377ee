# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with sparse gradients, T41 and Q43."""

import contextlib
import os
import warnings

import pytest
import torch

import rueda.torch as hvd
from rueda.exceptions import ResourceExhaustedError

ROWS = 40


class Words(torch.nn.Module):
    """Two tables and a dense layer, in float64 so that orders of summation do not show."""

    def __init__(self, sparse=True, rows=ROWS, other_dtype=torch.float64):
        super().__init__()
        torch.manual_seed(0)
        self.words = torch.nn.Embedding(rows, 3, sparse=sparse).double()
        self.tags = torch.nn.Embedding(rows // 2, 5, sparse=sparse).to(other_dtype)
        self.out = torch.nn.Linear(8, 2).double()

    def forward(self, words, tags):
        return self.out(torch.cat((self.words(words), self.tags(tags).double()), dim=1))


def tokens(step, rank, rows=ROWS, count=12):
    """Ids with many duplicates, other ones on each rank."""
    generator = torch.Generator().manual_seed(17 * step + rank)
    ids = torch.randint(0, rows // 2, (count,), generator=generator) * 2
    return ids, ids % (rows // 2)


def train(model, optimizers, steps, ranks, passes=1):
    """Takes steps with the mean loss over the ids of `ranks`."""
    for step in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for number in range(passes):
            ids = [tokens(step * passes + number, rank) for rank in ranks]
            loss = model(*(torch.cat(part) for part in zip(*ids))).pow(2).mean() / passes
            loss.backward()
        for optimizer in optimizers:
            optimizer.step()


MAKERS = {
    'sgd': lambda parameters: torch.optim.SGD(parameters, lr=0.2),
    'momentum': lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    'adagrad': lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    'sparse-adam': lambda parameters: torch.optim.SparseAdam(list(parameters), lr=0.05),
}


def optimizers_of(model, kind, wrapped, **options):
    """One optimizer for the tables and, for SparseAdam, another one for the dense layer."""
    parts = [list(model.named_parameters())]
    if kind == 'sparse-adam':
        parts = [[pair for pair in parts[0] if pair[0].startswith('out') == dense]
                 for dense in (False, True)]
    made = []
    for part, maker in zip(parts, (MAKERS[kind], MAKERS['sgd'])):
        optimizer = maker([parameter for _, parameter in part])
        made.append(hvd.DistributedOptimizer(optimizer, named_parameters=part, **options)
                    if wrapped else optimizer)
    return made


class Halver(hvd.Compressor):
    """A compressor of the user's; rows of sparse gradients go around it."""

    @staticmethod
    def compress(tensor):
        return tensor / 2, None

    @staticmethod
    def decompress(tensor, ctx):
        return tensor * 2


def body_training(kind, passes, compression):
    options = {'compression': Halver if compression == 'own' else
               getattr(hvd.Compression, compression)}
    model = Words()
    train(model, optimizers_of(model, kind, True, backward_passes_per_step=passes, **options), 5,
          [hvd.rank()], passes)
    for parameter in (model.words.weight, model.tags.weight):
        assert parameter.grad.is_sparse and parameter.grad.is_coalesced()
    alone = Words()
    train(alone, optimizers_of(alone, kind, False), 5, range(hvd.size()), passes)
    tolerance = 1e-9 if compression in ('none', 'own') else 2e-2
    for (name, one), other in zip(model.named_parameters(), alone.parameters()):
        assert torch.allclose(one, other, rtol=tolerance, atol=tolerance), name
        assert all(torch.equal(one, at) for at in hvd.allgather_object(one.detach())), name


@pytest.mark.parametrize('size', [2, 3])
@pytest.mark.parametrize('kind', sorted(MAKERS))
def test_training_equals_one_process_with_all_data(ranks, size, kind):
    """T41: duplicates are merged within a rank and over ranks."""
    ranks(size).run(body_training, kind, 1, 'none')


@pytest.mark.parametrize('passes, compression', [(3, 'none'), (1, 'fp16'), (2, 'bf16'), (2, 'own')])
def test_passes_and_compression(ranks, passes, compression):
    """T33 and T19 with sparse gradients."""
    ranks(2).run(body_training, 'sgd', passes, compression)


def body_result():
    rank, size = hvd.rank(), hvd.size()
    table = torch.nn.Embedding(10, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), op=hvd.Sum)
    for coalesced in (False, True):
        optimizer.zero_grad()
        table(torch.tensor([7, rank, 7, 7])).sum().backward()
        if coalesced:
            table.weight.grad = table.weight.grad.coalesce()
        optimizer.synchronize()
        gradient = table.weight.grad
        assert gradient.is_coalesced() and gradient.shape == (10, 2)
        assert gradient.indices()[0].tolist() == [*range(size), 7]
        assert gradient.values().tolist() == [[1.0, 1.0]] * size + [[3.0 * size] * 2]
        # Each index is there once and in order: what PyTorch trusts a coalesced tensor for.
        assert torch.equal(gradient.to_dense(), torch.sparse_coo_tensor(
            gradient.indices(), gradient.values(), gradient.shape).coalesce().to_dense())


@pytest.mark.row('T41', 'Q43')
@pytest.mark.parametrize('size', [2, 4])
def test_the_result_is_coalesced_and_ascending(ranks, size):
    ranks(size).run(body_result)


def body_missing():
    model = Words()
    optimizer, = optimizers_of(model, 'sgd', True)
    model.words(torch.tensor([1])).sum().backward()
    model.tags(torch.tensor([2])).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    before = model.words.weight.detach().clone()
    if hvd.rank() == 1:  # The other ranks have no gradient at all.
        model.words(torch.tensor([3, 3])).sum().backward()
    optimizer.step()
    change = (before - model.words.weight.detach())
    assert torch.allclose(change[3], torch.full((3,), 0.2 * 2 / hvd.size(), dtype=torch.float64))
    assert torch.count_nonzero(change) == 3
    assert model.words.weight.grad.indices().tolist() == [[3]]
    assert model.tags.weight.grad.is_sparse and model.tags.weight.grad._nnz() == 0
    # Not even a backward on any rank; and what .grad holds still counts (see synchronize()).
    optimizer.zero_grad(set_to_none=True)
    optimizer.step()
    for values in hvd.allgather_object(model.words.weight.detach()):
        assert torch.equal(values, model.words.weight)


@pytest.mark.parametrize('size', [2, 3])
def test_a_rank_without_a_gradient_counts_as_zeros(ranks, size):
    """T34 for sparse gradients."""
    ranks(size).run(body_missing)


def body_first_step_missing():
    # Rank 0 sees no sparse gradient in the step in which gradients are laid out.
    model = Words()
    optimizer, = optimizers_of(model, 'sgd', True)
    if hvd.rank() == 1:
        model(*tokens(0, 1)).sum().backward()
    optimizer.step()
    assert model.words.weight.grad.is_sparse
    assert len(optimizer._reducer._buckets) == 2


def test_one_rank_is_enough_to_make_a_parameter_sparse(ranks):
    ranks(2).run(body_first_step_missing)


def counted(calls):
    """Counts the operations of a block by kind."""
    from rueda import _session
    session = _session.current()
    real = session.run

    @contextlib.contextmanager
    def spy():
        session.run = lambda name, *rest: (calls.append(name), real(name, *rest))[1]
        try:
            yield
        finally:
            del session.run
    return spy()


def body_operations():
    torch.manual_seed(0)
    tables = torch.nn.ModuleList([torch.nn.Embedding(20 + number, 2 + number, sparse=True)
                                  for number in range(6)])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(tables.parameters(), lr=0.1))
    for step in range(2):
        optimizer.zero_grad()
        sum(table(torch.tensor([number, hvd.rank()])).sum()
            for number, table in enumerate(tables)).backward()
        calls = []
        if step:
            with counted(calls):
                optimizer.step()
            assert len(calls) == 2, calls  # Rows, values.
        else:
            optimizer.step()


def test_several_tables_take_two_operations(ranks):
    ranks(2).run(body_operations)


def body_dense_or_sparse():
    def block(ids, size=(8, 4)):
        table = torch.nn.Embedding(*size, sparse=True)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1))
        table(torch.tensor(ids)).sum().backward()
        seen = []
        from rueda.torch import sparse_bucket
        real = sparse_bucket._result
        sparse_bucket._result = lambda table: (seen.append((table.whole, len(table.block))),
                                               real(table))[1]
        try:
            optimizer.synchronize()
        finally:
            sparse_bucket._result = real
        assert table.weight.grad.is_sparse
        assert table.weight.grad.indices()[0].tolist() == sorted(
            set(sum(hvd.allgather_object(ids), [])))
        assert len(set(hvd.allgather_object(str(seen)))) == 1
        return seen[0]

    # A row is 16 bytes, its index 8: from 6 of 8 rows on the whole table takes no more.
    assert block([0, 1, 2] if hvd.rank() == 0 else [2, 3, 4]) == (False, 5)
    assert block([0, 1, 2] if hvd.rank() == 0 else [3, 4, 5]) == (True, 8)
    assert block(list(range(8)) if hvd.rank() == 0 else [1]) == (True, 8)


def test_the_form_is_chosen_by_bytes_and_agreed(ranks):
    ranks(2).run(body_dense_or_sparse)


def body_as_dense():
    model = Words()
    optimizer, = optimizers_of(model, 'sgd', True, sparse_as_dense=True)
    train(model, [optimizer], 3, [hvd.rank()])
    assert not model.words.weight.grad.is_sparse
    alone = Words()
    train(alone, optimizers_of(alone, 'sgd', False), 3, range(hvd.size()))
    for one, other in zip(model.parameters(), alone.parameters()):
        assert torch.allclose(one, other)


@pytest.mark.row('T41', 'Q42')
def test_sparse_as_dense(ranks):
    """Q42."""
    ranks(2).run(body_as_dense)


def body_limit():
    os.environ['RUEDA_SPARSE_LIMIT_BYTES'] = '200'
    try:
        model = Words()
        optimizer, = optimizers_of(model, 'sgd', True)
    finally:
        del os.environ['RUEDA_SPARSE_LIMIT_BYTES']
    before = model.words.weight.detach().clone()
    # A row of `words` is 24 bytes and its index 8; only together the ranks touch 8 of them.
    ids = torch.arange(4) + 4 * hvd.rank()
    model.words(ids).sum().backward()
    with pytest.raises(ResourceExhaustedError) as caught:
        optimizer.step()
    assert 'words.weight takes 256 bytes (8 of 40 rows' in str(caught.value), caught.value
    assert 'the limit is 200' in str(caught.value)
    assert torch.equal(before, model.words.weight)
    optimizer.zero_grad()
    model.words(torch.tensor([1])).sum().backward()
    optimizer.step()
    assert torch.allclose(model.words.weight[1], before[1] - 0.2)


def test_the_limit_is_an_error_on_all_ranks_and_the_session_goes_on(ranks):
    ranks(2).run(body_limit)


def body_operation():
    table = torch.nn.Embedding(10, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), op=hvd.Max)
    if hvd.rank() == 0:
        table(torch.tensor([1])).sum().backward()
    with pytest.raises(ValueError, match='noname.0.0 is sparse; it can only be averaged or summed'):
        optimizer.step()
    hvd.barrier()


def test_an_operation_that_sparse_gradients_cannot_have(ranks):
    """Q24: on all ranks, also where there is no gradient."""
    ranks(2).run(body_operation)


def body_dense_on_one_rank():
    table = torch.nn.Embedding(6, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), op=hvd.Sum)
    loss = table(torch.tensor([1])).sum()
    if hvd.rank() == 0:
        loss = loss + table.weight.sum()  # As of a table whose weights are used again elsewhere.
    loss.backward()
    optimizer.step()
    wanted = torch.ones(6, 2)
    wanted[1] += hvd.size()
    assert not table.weight.grad.is_sparse and torch.equal(table.weight.grad, wanted)
    optimizer.synchronize()  # What .grad still holds counts again.
    assert torch.equal(table.weight.grad, wanted * hvd.size())


def test_a_gradient_that_is_dense_on_one_rank(ranks):
    ranks(2).run(body_dense_on_one_rank)


def body_kept():
    # Without zero_grad() the reduced gradient is accumulated into, as torch does it.
    table = torch.nn.Embedding(6, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.0), op=hvd.Sum)
    for step in range(3):
        if step < 2:
            table(torch.tensor([step])).sum().backward()
        optimizer.synchronize()
        with warnings.catch_warnings(), optimizer.skip_synchronize():
            warnings.simplefilter('error')
            optimizer.step()
    size = float(hvd.size())
    assert table.weight.grad.to_dense()[:2].tolist() == [[size ** 3] * 2, [size ** 2] * 2]
    values = table.weight.grad.to_dense()
    hvd.shutdown()
    assert torch.equal(table.weight.grad.to_dense(), values)
    hvd.init()
    optimizer.zero_grad(set_to_none=False)
    table(torch.tensor([5])).sum().backward()
    optimizer.step()
    assert table.weight.grad.indices().tolist() == [[5]]


def test_gradients_that_are_kept_and_those_of_a_session_that_ended(ranks):
    ranks(2).run(body_kept)


def body_dtypes():
    model = Words(other_dtype=torch.bfloat16)
    optimizer, = optimizers_of(model, 'sgd', True)
    for step in range(2):
        optimizer.zero_grad()
        model(*tokens(step, hvd.rank())).sum().backward()
        optimizer.step()
    assert model.tags.weight.grad.dtype == torch.bfloat16
    # Rows that grow and shrink from step to step, past the buffers of the first.
    table = torch.nn.Embedding(1000, 4, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.1), op=hvd.Sum)
    for count in (1, 600, 3, 999):
        optimizer.zero_grad()
        table(torch.arange(count)).sum().backward()
        optimizer.step()
        assert table.weight.grad._nnz() == count
        assert torch.all(table.weight.grad._values() == hvd.size())


def test_dtypes_and_numbers_of_rows(ranks):
    ranks(3).run(body_dtypes)
