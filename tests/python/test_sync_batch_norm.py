# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm against torch.nn.BatchNorm of one process that sees the batches of all ranks."""

import copy

import pytest
import torch

import rueda.torch as hvd

CHANNELS = 5
PLAIN = {2: torch.nn.BatchNorm1d, 3: torch.nn.BatchNorm1d, 4: torch.nn.BatchNorm2d,
         5: torch.nn.BatchNorm3d}
SHAPES = {2: (), 3: (6,), 4: (3, 2), 5: (2, 3, 2)}
# Largest difference, relative and absolute. float32: a few hundred roundings of sums of up to some
# hundred values; bfloat16: its own rounding of inputs and results.
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 3e-2}


def batch(rank, step, dims=4, rows=4, dtype=torch.float64, mean=3.0):
    """The input of a rank, with another distribution on each, in which channels differ too."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    shape = (rows, CHANNELS, *SHAPES[dims])
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    scale = torch.arange(1, CHANNELS + 1).view(1, -1, *[1] * (dims - 2))
    return (values * scale * (rank + 1) + mean + rank).to(dtype)


def weights_of_loss(values):
    """Numbers that make the gradient of the output differ from element to element."""
    generator = torch.Generator().manual_seed(values.numel())
    return torch.randn(values.shape, generator=generator, dtype=torch.float64).to(values.dtype)


def rows_of(rank, uneven):
    return 4 if not uneven else 2 * rank  # None at all on rank 0.


def close(own, wanted, dtype):
    tolerance = TOLERANCE[dtype]
    assert own.shape == wanted.shape and own.dtype == wanted.dtype
    assert torch.allclose(own, wanted, rtol=tolerance, atol=tolerance), (own - wanted).abs().max()


def compare(dims, dtype, uneven, **options):
    """Two steps of training and one of evaluation, on both sides."""
    rank, size = hvd.rank(), hvd.size()
    rows = [rows_of(other, uneven) for other in range(size)]
    first, last = sum(rows[:rank]), sum(rows[:rank + 1])
    own = hvd.SyncBatchNorm(CHANNELS, **options)
    plain = PLAIN[dims](CHANNELS, **options)
    if options.get('affine', True):
        with torch.no_grad():
            own.weight.copy_(torch.linspace(0.5, 2.0, CHANNELS))
            own.bias.copy_(torch.linspace(-1.0, 1.0, CHANNELS))
    plain.load_state_dict(own.state_dict())
    if dtype != torch.bfloat16:
        own, plain = own.to(dtype), plain.to(dtype)
    for step in range(2):
        own.zero_grad()
        plain.zero_grad()
        pieces = [batch(other, step, dims, rows[other], dtype) for other in range(size)]
        mine = pieces[rank].clone().requires_grad_()
        everything = torch.cat(pieces).requires_grad_()
        output, wanted = own(mine), plain(everything)
        close(output, wanted[first:last], dtype)
        factors = weights_of_loss(everything)
        (wanted * factors).sum().backward()
        (output * factors[first:last]).sum().backward()
        close(mine.grad, everything.grad[first:last], dtype)
        for parameter, other in zip(own.parameters(), plain.parameters()):
            total = hvd.allreduce(parameter.grad, op=hvd.Sum)
            if dtype == torch.bfloat16:  # Sums of rounded values: only relative to their size.
                assert (total - other.grad).abs().max() < 0.1 * other.grad.abs().max()
            else:
                close(total, other.grad, dtype)
    for name, value in own.state_dict().items():
        close(value, plain.state_dict()[name], dtype)
        for other in hvd.allgather_object(value):
            assert torch.equal(value, other), f'{name} has other bits on other ranks'
    own.eval()
    plain.eval()
    mine = batch(rank, 7, dims, 4, dtype)
    close(own(mine), plain(mine), dtype)


def body_compare(dims, dtype, uneven, options):
    compare(dims, getattr(torch, dtype), uneven, **options)


@pytest.mark.row('T50')
@pytest.mark.parametrize('size', [2, 3])
@pytest.mark.parametrize('dims', sorted(PLAIN))
@pytest.mark.parametrize('uneven', [False, True])
def test_results_are_those_of_one_process(ranks, size, dims, uneven):
    ranks(size).run(body_compare, dims, 'float64', uneven, {})


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_narrower_dtypes(ranks, dtype):
    ranks(2).run(body_compare, 4, dtype, True, {})


@pytest.mark.row('T50')
@pytest.mark.parametrize('options', [
    {'affine': False}, {'track_running_stats': False}, {'momentum': None}, {'momentum': 0.3},
    {'eps': 0.5}, {'affine': False, 'track_running_stats': False}], ids=str)
def test_options(ranks, options):
    ranks(2).run(body_compare, 4, 'float64', True, options)


def body_evaluation_is_local():
    # Only rank 0 calls: an exchange would wait for rank 1 until the time limit.
    if hvd.rank() == 0:
        for tracked in (True, False):
            own = hvd.SyncBatchNorm(CHANNELS, track_running_stats=tracked).eval()
            plain = PLAIN[4](CHANNELS, track_running_stats=tracked).eval()
            assert torch.equal(own(batch(0, 0).float()), plain(batch(0, 0).float()))


def test_evaluation_exchanges_nothing(ranks):
    ranks(2).run(body_evaluation_is_local, seconds=20)


def body_first_layer():
    # The input needs no gradient, the parameters do; backward exchanges nothing then.
    rank, size = hvd.rank(), hvd.size()
    own, plain = hvd.SyncBatchNorm(CHANNELS).double(), PLAIN[4](CHANNELS).double()
    own(batch(rank, 0)).pow(3).sum().backward()
    plain(torch.cat([batch(other, 0) for other in range(size)])).pow(3).sum().backward()
    for parameter, other in zip(own.parameters(), plain.parameters()):
        close(hvd.allreduce(parameter.grad, op=hvd.Sum), other.grad, torch.float64)
    # Frozen parameters below a layer that trains.
    for parameter in own.parameters():
        parameter.requires_grad_(False)
    mine = batch(rank, 0).requires_grad_()
    own(mine).pow(3).sum().backward()
    assert mine.grad.abs().sum() > 0 and torch.isfinite(mine.grad).all()
    with torch.no_grad():
        assert not own(mine).requires_grad


def test_gradients_that_nobody_asks_for(ranks):
    ranks(2).run(body_first_layer)


def body_large_mean():
    # 1e4 against a deviation of 1: sums of squares in float32 would leave no digit of the variance.
    pieces = [batch(rank, 0, 4, 64, torch.float64, mean=1e4) for rank in range(hvd.size())]
    own = hvd.SyncBatchNorm(CHANNELS, momentum=1.0)
    own(pieces[hvd.rank()].float())
    wanted = torch.cat(pieces).float().double().var((0, 2, 3))
    assert torch.allclose(own.running_var.double(), wanted, rtol=1e-5), (
        own.running_var, wanted)


def test_a_large_mean_does_not_spoil_the_variance(ranks):
    ranks(2).run(body_large_mean)


def body_memory_formats():
    own = hvd.SyncBatchNorm(CHANNELS).double()
    other = copy.deepcopy(own)
    mine = batch(hvd.rank(), 0)
    # Channels last, and a view of a larger tensor.
    last = mine.to(memory_format=torch.channels_last)
    assert torch.allclose(own(mine), other(last), rtol=1e-12)
    strided = torch.stack([mine, mine], dim=-1)[..., 0]
    assert torch.allclose(own(mine), own(strided), rtol=1e-12)


def test_any_layout_of_memory(ranks):
    ranks(2).run(body_memory_formats)


def body_errors():
    layer = hvd.SyncBatchNorm(CHANNELS)
    before = copy.deepcopy(layer.state_dict())
    with pytest.raises(ValueError, match='at least 2 dims, got 1'):
        layer(torch.ones(CHANNELS))
    with pytest.raises(ValueError, match=r'5 channels in dim 1, got shape \(2, 4, 3\)'):
        layer(torch.ones(2, 4, 3))
    # One value in all: it fails everywhere, and nobody waits.
    with pytest.raises(ValueError, match=f'all {hvd.size()} ranks hold 1'):
        layer(torch.ones(1 if hvd.rank() == 0 else 0, CHANNELS))
    with pytest.raises(hvd.HorovodInternalError, match='statistics'):
        hvd.SyncBatchNorm(CHANNELS + hvd.rank())(torch.ones(2, CHANNELS + hvd.rank()))
    for name, value in layer.state_dict().items():
        assert torch.equal(value, before[name]), f'{name} has changed'
    # One value per rank is enough, unlike for a plain batch norm.
    assert torch.isfinite(layer(torch.full((1, CHANNELS), float(hvd.rank())))).all()


@pytest.mark.row('T50')
def test_errors(ranks):
    ranks(2).run(body_errors)


def body_training():
    def network(normalisation):
        torch.manual_seed(0)
        return torch.nn.Sequential(
            torch.nn.Conv2d(CHANNELS, 4, 2), normalisation(4), torch.nn.ReLU(),
            torch.nn.Flatten(), torch.nn.Linear(8, 2)).double()

    rank, size = hvd.rank(), hvd.size()
    own, plain = network(hvd.SyncBatchNorm), network(torch.nn.BatchNorm2d)
    wrapped = hvd.DistributedOptimizer(torch.optim.SGD(own.parameters(), lr=0.05),
                                       named_parameters=own.named_parameters())
    alone = torch.optim.SGD(plain.parameters(), lr=0.05)
    for step in range(5):
        wrapped.zero_grad()
        own(batch(rank, step)).pow(2).mean().backward()
        wrapped.step()
        alone.zero_grad()
        plain(torch.cat([batch(other, step) for other in range(size)])).pow(2).mean().backward()
        alone.step()
    for name, value in own.state_dict().items():
        close(value, plain.state_dict()[name], torch.float64)


def test_training_with_the_distributed_optimizer_is_that_of_one_process(ranks):
    ranks(3).run(body_training)


ALONE = '''
import torch, rueda.torch as hvd
layer, plain = hvd.SyncBatchNorm(3), torch.nn.BatchNorm1d(3)
layer.eval()(torch.ones(2, 3))
try:
    layer.train()(torch.ones(2, 3))
    raise SystemExit('no error before init()')
except ValueError as error:
    assert 'hvd.init()' in str(error), error
hvd.init()
values = torch.randn(4, 3)
assert torch.equal(layer(values), plain(values))
assert torch.equal(layer.running_var, plain.running_var)
print('fine', isinstance(layer, torch.nn.modules.batchnorm._BatchNorm))
'''


@pytest.mark.row('T50')
def test_a_job_of_one_rank_has_a_plain_batch_norm(python):
    result = python(ALONE)
    assert result.stdout == 'fine True\n', result.stderr
