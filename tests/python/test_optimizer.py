# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer trains as one process with all the data would."""

import warnings

import pytest
import torch
from training import assert_same, data, loss_of, network, sgd, train_alone, wrap

import rueda.torch as hvd


def body_parity(kind, set_to_none):
    make = {'sgd': sgd, 'adam': lambda parameters: torch.optim.Adam(parameters, lr=0.01)}[kind]
    model = network()
    optimizer = wrap(model, make)
    for step in range(10):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_of(model, data(step, hvd.rank())).backward()
        optimizer.step()
    assert_same(model, train_alone(make, 10))


@pytest.mark.row('T33')
@pytest.mark.parametrize('size', [2, 3, 4])
@pytest.mark.parametrize('kind', ['sgd', 'adam'])
@pytest.mark.parametrize('set_to_none', [True, False])
def test_training_equals_one_process_with_all_data(ranks, size, kind, set_to_none):
    ranks(size).run(body_parity, kind, set_to_none)


def body_many_buckets():
    # 9.4 MB of float32: more than one bucket, so that all but the last start during backward.
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[layer for _ in range(5) for layer in
                                  (torch.nn.Linear(680, 680), torch.nn.Tanh())])
    alone = torch.nn.Sequential(*[layer for _ in range(5) for layer in
                                  (torch.nn.Linear(680, 680), torch.nn.Tanh())])
    alone.load_state_dict(model.state_dict())
    optimizer, other = wrap(model), sgd(alone.parameters())
    for step in range(3):
        inputs = [torch.randn(4, 680, generator=torch.Generator().manual_seed(step * 10 + rank))
                  for rank in range(hvd.size())]
        optimizer.zero_grad()
        loss_of(model, inputs[hvd.rank()]).backward()
        started = [bucket.launched for bucket in optimizer._reducer._buckets or ()]
        # In the first step it is not known yet which gradients are sparse.
        assert step == 0 or (len(started) > 1 and all(started[:-1]) and not started[-1])
        optimizer.step()
        other.zero_grad()
        loss_of(alone, torch.cat(inputs)).backward()
        other.step()
    assert_same(model, alone, 1e-4)


@pytest.mark.row('T32', 'T33')
@pytest.mark.parametrize('size', [2, 3])
def test_early_buckets_start_during_backward(ranks, size):
    ranks(size).run(body_many_buckets)


def body_gradients_stay_in_place():
    model = network()
    optimizer = wrap(model)
    seen = set()
    for step in range(4):
        loss_of(model, data(step, hvd.rank())).backward()
        optimizer.step()
        seen.add(tuple(parameter.grad.data_ptr() for parameter in model.parameters()))
        if step % 2:
            optimizer.zero_grad()
        else:
            model.zero_grad()  # May replace .grad by None.
    assert len(seen) == 1


def test_gradients_keep_their_memory(ranks):
    ranks(2).run(body_gradients_stay_in_place)


class TwoHeads(torch.nn.Module):
    """Each rank may use another head."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Linear(4, 3).double()
        self.heads = torch.nn.ModuleList([torch.nn.Linear(3, 1).double() for _ in range(3)])

    def forward(self, inputs, head):
        return self.heads[head](self.body(inputs))


def body_missing_gradients():
    model = TwoHeads()
    optimizer = wrap(model, lambda parameters: torch.optim.SGD(parameters, lr=0.5))
    before = [head.weight.detach().clone() for head in model.heads]
    model(data(0, hvd.rank()), hvd.rank() % 2).sum().backward()
    optimizer.step()
    assert not torch.equal(model.heads[0].weight, before[0])
    assert not torch.equal(model.heads[1].weight, before[1])
    assert torch.equal(model.heads[2].weight, before[2])  # Used by nobody: zeros.
    assert torch.all(model.heads[2].weight.grad == 0)
    for parameters in hvd.allgather_object(list(model.parameters())):
        assert all(map(torch.equal, parameters, model.parameters()))
    # No backward at all on one rank.
    optimizer.zero_grad()
    if hvd.rank() == 0:
        model(data(1, 0), 2).sum().backward()
    optimizer.step()
    assert all(torch.all(head.weight.grad == 0) for head in model.heads[:2])
    for parameters in hvd.allgather_object(list(model.parameters())):
        assert all(map(torch.equal, parameters, model.parameters()))


@pytest.mark.row('T34')
@pytest.mark.parametrize('size', [2, 4])
def test_missing_gradients_count_as_zeros(ranks, size):
    ranks(size).run(body_missing_gradients)


def body_clipping():
    model = network()
    optimizer = wrap(model)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, data(step, hvd.rank())).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        with optimizer.skip_synchronize(), warnings.catch_warnings():
            warnings.simplefilter('error')
            optimizer.step()
    alone = network()
    other = sgd(alone.parameters())
    for step in range(3):
        other.zero_grad()
        loss_of(alone, torch.cat([data(step, rank) for rank in range(hvd.size())])).backward()
        torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.01)
        other.step()
    assert_same(model, alone)
    optimizer.zero_grad()
    loss_of(model, data(9, hvd.rank())).backward()
    optimizer.synchronize()
    with pytest.warns(UserWarning, match='skip_synchronize'):
        optimizer.step()


@pytest.mark.row('T36')
def test_clipping_between_synchronize_and_step(ranks):
    ranks(2).run(body_clipping)


class Halver(hvd.Compressor):
    """A compressor of the user's: float32 of half the value."""

    @staticmethod
    def compress(tensor):
        return tensor.to(torch.float32) / 2, tensor.dtype

    @staticmethod
    def decompress(tensor, ctx):
        return tensor.to(ctx) * 2


def body_compression(kind):
    compression = Halver if kind == 'own' else getattr(hvd.Compression, kind)
    model = network(torch.float32)
    optimizer = wrap(model, compression=compression, backward_passes_per_step=2)
    for step in range(4):
        optimizer.zero_grad()
        for _ in range(2):
            (loss_of(model, data(step, hvd.rank(), torch.float32)) / 2).backward()
        optimizer.step()
        assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
    tolerance = {'fp16': 3e-3, 'bf16': 2e-2, 'own': 1e-5}[kind]
    assert_same(model, train_alone(sgd, 4, torch.float32), tolerance)


@pytest.mark.row('T19')
@pytest.mark.parametrize('kind', ['fp16', 'bf16', 'own'])
def test_compression(ranks, kind):
    ranks(2).run(body_compression, kind)


def body_mixed_dtypes():
    torch.manual_seed(0)
    model = torch.nn.ModuleList([torch.nn.Linear(3, 3).double(), torch.nn.Linear(3, 3),
                                 torch.nn.Linear(3, 3).to(torch.bfloat16)])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(3):
        optimizer.zero_grad()
        sum((layer(torch.ones(2, 3, dtype=layer.weight.dtype)) * (hvd.rank() + 1)).sum().float()
            for layer in model).backward()
        optimizer.step()
        mean = 2 * (hvd.size() + 1) / 2
        assert all(torch.all(layer.bias.grad == mean) for layer in model)


def test_one_model_of_several_dtypes(ranks):
    ranks(3).run(body_mixed_dtypes)


def body_closure():
    model = network()
    optimizer = wrap(model)
    for step in range(3):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, data(step, hvd.rank()))
            loss.backward()
            return loss
        assert optimizer.step(closure) > 0
    assert_same(model, train_alone(sgd, 3))


def test_step_with_a_closure(ranks):
    ranks(2).run(body_closure)


def body_second_order():
    # create_graph makes torch replace .grad at each pass.
    model = network()
    optimizer = wrap(model)
    for step in range(3):
        optimizer.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            loss_of(model, data(step, hvd.rank())).backward(create_graph=True)
        optimizer.step()
    assert_same(model, train_alone(sgd, 3))


def test_backward_with_create_graph(ranks):
    ranks(2).run(body_second_order)


def body_channels_last():
    torch.manual_seed(0)
    model = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.full((1, 3, 5, 5), float(hvd.rank()))).sum().backward()
        optimizer.step()
        assert torch.allclose(model.weight.grad, torch.tensor(16.0 * (hvd.size() - 1) / 2))
        assert model.weight.grad.stride() == model.weight.stride()


def test_parameters_in_channels_last_order(ranks):
    ranks(2).run(body_channels_last)
