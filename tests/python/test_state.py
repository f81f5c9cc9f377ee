# SPDX-License-Identifier: Apache-2.0
"""Parameters, optimizer state and Python objects from one rank to all."""

import collections

import pytest
import torch

import rueda.torch as hvd


def model(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(),
                               torch.nn.Linear(6, 2))


def equal_everywhere(tensor):
    """Whether all ranks have the same bits."""
    return all(torch.equal(tensor, other) for other in hvd.allgather_object(tensor))


def body_parameters():
    own = model(hvd.rank())
    hvd.broadcast_parameters(own.state_dict(), root_rank=1)
    wanted = model(1).state_dict()
    for name, value in own.state_dict().items():
        assert torch.equal(value, wanted[name]), name
    own = model(hvd.rank())
    hvd.broadcast_parameters(list(own.named_parameters()), root_rank=0)
    hvd.broadcast_parameters(own.named_buffers(), root_rank=0)
    hvd.broadcast_parameters([torch.full((2,), float(hvd.rank()))], root_rank=0)
    assert all(equal_everywhere(value) for value in own.state_dict().values())
    # Not contiguous, as with the channels_last memory format.
    image = torch.full((2, 3, 4, 4), float(hvd.rank())).contiguous(
        memory_format=torch.channels_last)
    hvd.broadcast_parameters([('image', image)], root_rank=1)
    assert torch.all(image == 1.0)
    for wrong in (5, [1, 2], None):
        with pytest.raises(ValueError):
            hvd.broadcast_parameters(wrong, root_rank=0)


@pytest.mark.row('T15')
@pytest.mark.parametrize('size', [2, 3])
def test_broadcast_parameters(ranks, size):
    ranks(size).run(body_parameters)


OPTIMIZERS = {
    'sgd': lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    'momentum': lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9,
                                                   weight_decay=0.1, nesterov=True),
    'adam': lambda parameters: torch.optim.Adam(parameters, lr=0.01, betas=(0.8, 0.99)),
    'adamw': lambda parameters: torch.optim.AdamW(parameters, lr=0.01, amsgrad=True),
    'rmsprop': lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, centered=True),
    'adagrad': lambda parameters: torch.optim.Adagrad(parameters, lr=0.01),
    'adadelta': lambda parameters: torch.optim.Adadelta(parameters),
}


def take_steps(network, optimizer, count):
    for step in range(count):
        torch.manual_seed(step)
        optimizer.zero_grad()
        network(torch.randn(8, 4)).pow(2).sum().backward()
        optimizer.step()


def body_optimizer_state(kind, wrapped, root_has_state):
    root = hvd.size() - 1
    network = model(0)
    optimizer = OPTIMIZERS[kind](network.parameters())
    if (hvd.rank() == root) == root_has_state:
        take_steps(network, optimizer, 2)
    if hvd.rank() == root:
        optimizer.param_groups[0]['lr'] = 0.125
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer,
                                             named_parameters=network.named_parameters())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    hvd.broadcast_optimizer_state(optimizer, root_rank=root, model=network)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), 'a parameter has changed'
    states = hvd.allgather_object(optimizer.state_dict())
    wanted = states[root]
    assert wanted['param_groups'][0]['lr'] == 0.125
    if kind not in ('sgd', 'adagrad'):  # Whether these have slots depends on torch.
        assert bool(wanted['state']) == root_has_state
    for state in states:
        assert state['param_groups'] == wanted['param_groups']
        assert types(state['param_groups']) == types(wanted['param_groups'])
        assert state['state'].keys() == wanted['state'].keys()
        for key, slots in state['state'].items():
            assert slots.keys() == wanted['state'][key].keys()
            for name, value in slots.items():
                other = wanted['state'][key][name]
                assert torch.equal(torch.as_tensor(value), torch.as_tensor(other)) \
                    if value is not None else other is None
    hvd.broadcast_parameters(network.state_dict(), root_rank=root)
    take_steps(network, optimizer, 2)
    assert all(equal_everywhere(value) for value in network.state_dict().values())


def types(value):
    """The types of a nested structure, as text."""
    if isinstance(value, dict):
        return {key: types(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__] + [types(item) for item in value]
    return type(value).__name__


@pytest.mark.row('T16')
@pytest.mark.parametrize('kind', sorted(OPTIMIZERS))
@pytest.mark.parametrize('root_has_state', [True, False])
def test_broadcast_optimizer_state(ranks, kind, root_has_state):
    ranks(2).run(body_optimizer_state, kind, kind != 'adam', root_has_state)


def body_lbfgs():
    optimizer = torch.optim.LBFGS(model(0).parameters())
    with pytest.raises(ValueError, match='LBFGS'):
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)


@pytest.mark.row('T16')
def test_lbfgs_is_refused(ranks):
    ranks(2).run(body_lbfgs)


Point = collections.namedtuple('Point', 'x y')


def body_objects():
    rank, size = hvd.rank(), hvd.size()
    sent = {'text': 'é' * 1000, 'nested': [None, (1, 2.5), {3}], 'tensor': torch.arange(5)}
    got = hvd.broadcast_object(sent if rank == 1 else None, root_rank=1, name='o')
    assert got['text'] == sent['text'] and got['nested'] == sent['nested']
    assert torch.equal(got['tensor'], sent['tensor'])
    assert (got is sent) == (rank == 1)
    # Without a name, and with other types of the ignored objects.
    assert hvd.broadcast_object([1, 2] if rank == 0 else 'ignored', root_rank=0) == [1, 2]
    large = bytes(range(256)) * 40000
    assert hvd.broadcast_object(large if rank == 0 else None) == large
    assert hvd.allgather_object(Point(rank, 'x' * rank)) == [
        Point(other, 'x' * other) for other in range(size)]
    assert hvd.allgather_object(None, name='none') == [None] * size


@pytest.mark.row('T17', 'T18')
@pytest.mark.parametrize('size', [2, 4])
def test_objects(ranks, size):
    ranks(size).run(body_objects)
