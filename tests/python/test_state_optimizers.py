# SPDX-License-Identifier: Apache-2.0
"""T16: broadcast_optimizer_state over every optimizer that this PyTorch has."""

import inspect

import pytest
import torch

import rueda.torch as hvd

CLASSES = sorted(name for name, kind in vars(torch.optim).items()
                 if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)
                 and kind not in (torch.optim.Optimizer, torch.optim.LBFGS))
# Arguments that change what an optimizer keeps, where it has them.
VARIANTS = {
    'plain': {}, 'foreach': {'foreach': True}, 'fused': {'fused': True},
    'capturable': {'capturable': True}, 'differentiable': {'differentiable': True},
    'amsgrad': {'amsgrad': True}, 'momentum': {'momentum': 0.9}, 'centered': {'centered': True},
    'lr-tensor': {'lr': torch.tensor(0.01)},
    'maximize': {'maximize': True, 'weight_decay': 0.01},
}


def cases():
    for name in CLASSES:
        known = inspect.signature(getattr(torch.optim, name).__init__).parameters
        for variant, options in VARIANTS.items():
            if all(option in known for option in options):
                yield name, variant


def make(name, variant):
    """(parameters, optimizer), or None where this PyTorch refuses the variant on a CPU."""
    torch.manual_seed(0)
    shapes = [(3, 4), (5, 4)] if name == 'Muon' else [(3, 4), (5,)]  # Muon takes matrices.
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    options = {'lr': 0.03, **{key: value.clone() if isinstance(value, torch.Tensor) else value
                              for key, value in VARIANTS[variant].items()}}
    # Two groups, of which one has options of its own.
    groups = [{'params': parameters[:1]},
              {'params': parameters[1:], 'lr': options['lr'] * 2}]
    try:
        return parameters, getattr(torch.optim, name)(groups, **options)
    except RuntimeError:
        return None


def step(parameters, optimizer, number):
    generator = torch.Generator().manual_seed(number)
    sparse = isinstance(optimizer, torch.optim.SparseAdam)
    for parameter in parameters:
        gradient = torch.randn(parameter.shape, generator=generator)
        parameter.grad = gradient.to_sparse(1) if sparse else gradient
    optimizer.step()


def same(one, other):
    """Whether two nested states have the same types, dtypes, shapes and bits."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def body_state(name, variant, root_steps, other_steps, wrapped):
    root = hvd.size() - 1
    is_root = hvd.rank() == root
    made = make(name, variant)
    if made is None:
        return 'refused'
    parameters, optimizer = made
    # These cannot take a step on a CPU, or in place, but their options must arrive.
    stepless = any(optimizer.defaults.get(key) for key in ('capturable', 'differentiable'))
    if stepless:
        root_steps = other_steps = 0
    for number in range(root_steps if is_root else other_steps):
        step(parameters, optimizer, number)
    optimizer.param_groups[1]['weight_decay' if 'weight_decay' in optimizer.defaults else 'lr'] = \
        0.25 + hvd.rank()
    if wrapped:
        optimizer = hvd.DistributedOptimizer(optimizer)
    before = [parameter.detach().clone() for parameter in parameters]
    hvd.broadcast_optimizer_state(optimizer, root_rank=root)
    assert all(map(torch.equal, before, parameters)), 'a parameter has changed'
    states = hvd.allgather_object(optimizer.state_dict())
    assert all(same(state, states[root]) for state in states), states
    hvd.broadcast_parameters(parameters, root_rank=root)
    if not wrapped and not stepless:
        step(parameters, optimizer, 9)
        for values in hvd.allgather_object([parameter.detach() for parameter in parameters]):
            assert all(map(torch.equal, values, parameters))
    return 'done'


@pytest.mark.parametrize('name, variant', list(cases()))
def test_every_optimizer_of_torch(ranks, name, variant):
    """With state on the root only, on the others only, on all, and on none."""
    answers = [ranks(2).run(body_state, name, variant, *steps)
               for steps in ((2, 0, False), (0, 2, False), (3, 1, True), (0, 0, True))]
    if answers[0][0] == 'refused':
        assert variant == 'fused'
        pytest.skip('this PyTorch has fused optimizers on GPUs only')


def test_the_table_knows_the_optimizers():
    assert {'Adam', 'AdamW', 'SGD', 'RMSprop', 'SparseAdam'} <= set(CLASSES)
    assert len(list(cases())) > 2 * len(CLASSES)


class Nested(torch.optim.Optimizer):
    """Keeps what no optimizer of torch does: nested and empty containers, None, numbers, text."""

    def __init__(self, parameters, **options):
        super().__init__(parameters, {'lr': 0.1, 'bounds': (0, (1.5, None)), 'names': ['a', ['b']],
                                      'flag': True, 'nothing': None, 'whole': 3, **options})

    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group['params']:
                self.state[parameter].update(
                    steps=4, rate=0.5, history=[parameter.detach() + 1, None, ()],
                    pair=(torch.tensor(2), {'deep': torch.ones(2, dtype=torch.float64)}),
                    text='x', empty={}, flag=False)


def body_nested():
    parameters = [torch.nn.Parameter(torch.full((2,), float(hvd.rank())))]
    optimizer = Nested(parameters, **({} if hvd.rank() == 0 else
                                      {'bounds': None, 'names': [], 'flag': 0, 'whole': 3.0}))
    if hvd.rank() == 0:
        optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    states = hvd.allgather_object(optimizer.state_dict())
    assert all(same(state, states[0]) for state in states), states
    group = optimizer.param_groups[0]
    assert group['bounds'] == (0, (1.5, None)) and group['names'] == ['a', ['b']]
    assert group['flag'] is True and group['nothing'] is None and type(group['whole']) is int
    state = optimizer.state[parameters[0]]
    assert type(state['steps']) is int and state['history'][1:] == [None, ()]
    assert torch.equal(state['history'][0], torch.ones(2)) and state['empty'] == {}


def test_nested_options_and_state_keep_their_types(ranks):
    ranks(3).run(body_nested)


def body_lbfgs():
    class Own(torch.optim.LBFGS):
        """A class of the user's."""

    parameters = [torch.nn.Parameter(torch.ones(2))]
    for kind in (torch.optim.LBFGS, Own):
        with pytest.raises(ValueError, match='LBFGS'):
            hvd.broadcast_optimizer_state(kind(parameters), root_rank=0)
        with pytest.raises(ValueError, match='LBFGS'):
            hvd.broadcast_optimizer_state(hvd.DistributedOptimizer(kind(parameters)), root_rank=0)


def test_lbfgs_is_refused_wrapped_or_not(ranks):
    ranks(2).run(body_lbfgs)


def body_parameters():
    rank = hvd.rank()
    named = [('a', torch.full((2,), float(rank))), ('b', torch.full((), float(rank)))]
    shared = named[0][1]
    hvd.broadcast_parameters(dict(named, number=5, nothing=None), root_rank=1)
    hvd.broadcast_parameters(iter([torch.full((1,), rank)]), root_rank=0)
    hvd.broadcast_parameters([], root_rank=0)
    hvd.broadcast_parameters({}, root_rank=0)
    assert shared.tolist() == [1.0, 1.0] and float(named[1][1]) == 1.0
    model = torch.nn.Linear(2, 2)
    view = model.weight[0]  # Not a leaf, not contiguous with the rest.
    hvd.broadcast_parameters([('view', view), model.bias], root_rank=0)
    hvd.broadcast_parameters([model.weight.t()], root_rank=0)
    hvd.assert_in_sync(model)
    with pytest.raises(ValueError, match='root_rank 7'):
        hvd.broadcast_parameters(model.state_dict(), root_rank=7)
    for wrong in ([('a', 1)], [None], 'text', 3):
        with pytest.raises(ValueError):
            hvd.broadcast_parameters(wrong, root_rank=0)
    # T17, T18: names and the process set by keyword.
    everyone = hvd.global_process_set
    assert hvd.broadcast_object({'x': rank}, 1, name='o', process_set=everyone) == {'x': 1}
    assert hvd.allgather_object(rank, name='r', process_set=everyone) == list(range(hvd.size()))
    with pytest.raises(ValueError):
        hvd.allgather_object(rank, process_set=[0])
    with pytest.raises(ValueError):
        hvd.broadcast_object(rank, process_set=[0])


def test_parameters_and_objects(ranks):
    """T15, T17, T18."""
    ranks(2).run(body_parameters)
