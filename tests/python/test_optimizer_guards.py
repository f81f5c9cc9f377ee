# SPDX-License-Identifier: Apache-2.0
"""What DistributedOptimizer says about NaN and about steps that bypass the reduction."""

import os
import warnings

import pytest
import torch
from training import assert_same, data, loss_of, network, sgd, train_alone, wrap

import rueda.torch as hvd


def spoil(model, name, value, rank):
    """Puts `value` into one element of a gradient of one rank, as backward makes it."""
    if hvd.rank() == rank:
        parameter = dict(model.named_parameters())[name]
        handle = parameter.register_hook(lambda gradient: gradient.clone().flatten().index_fill(
            0, torch.tensor([0]), value).view_as(gradient))
        return handle.remove
    return lambda: None


def body_guard(options, value, by_environment):
    if by_environment:
        os.environ['RUEDA_NAN_GUARD'] = '1'
    else:
        options['nan_guard'] = True
    if options.get('compression'):
        options['compression'] = getattr(hvd.Compression, options['compression'])
    try:
        model = network(torch.float32)
        optimizer = wrap(model, **options)
    finally:
        os.environ.pop('RUEDA_NAN_GUARD', None)
    last = hvd.size() - 1
    for step in range(3):
        optimizer.zero_grad()
        spoiled = [('2.weight', last), ('0.bias', 0)] if step == 1 else []
        undo = [spoil(model, name, float(value), rank) for name, rank in spoiled]
        before = [parameter.detach().clone() for parameter in model.parameters()]
        for _ in range(options.get('backward_passes_per_step', 1)):
            loss_of(model, data(step, hvd.rank(), torch.float32)).backward()
        if step != 1:
            optimizer.step()
            continue
        # Backward reaches 2.weight before 0.bias.
        with pytest.raises(FloatingPointError,
                           match=f'gradient of 2.weight holds NaN or infinity on rank {last}'):
            optimizer.step()
        assert all(map(torch.equal, before, model.parameters()))
        for remove in undo:
            remove()
    for parameters in hvd.allgather_object(list(model.parameters())):
        assert all(map(torch.equal, parameters, model.parameters()))


@pytest.mark.parametrize('size', [2, 3])
@pytest.mark.parametrize('options, value, by_environment', [
    ({}, 'nan', False), ({}, 'inf', True), ({'groups': 3}, '-inf', False),
    ({'compression': 'fp16'}, 'nan', False), ({'backward_passes_per_step': 2}, 'nan', False)])
def test_the_guard_names_tensor_and_rank_everywhere(ranks, size, options, value, by_environment):
    ranks(size).run(body_guard, options, value, by_environment)


def body_guard_is_opt_in():
    model = network()
    optimizer = wrap(model)
    spoil(model, '0.bias', float('nan'), 0)
    loss_of(model, data(0, hvd.rank())).backward()
    optimizer.step()
    assert torch.isnan(model[0].bias).any()


def test_without_the_guard_nan_spreads(ranks):
    ranks(2).run(body_guard_is_opt_in)


def body_guard_overflow():
    # The sum over a bucket overflows, though every gradient is finite.
    parameters = [torch.nn.Parameter(torch.ones(4)) for _ in range(2)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(parameters, lr=0.0), nan_guard=True)
    sum((parameter * 3e38).sum() * 1e-8 for parameter in parameters).backward()
    for parameter in parameters:
        parameter.grad.fill_(3e38)
    optimizer.step()
    table = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=0.0),
                                         named_parameters=table.named_parameters(), nan_guard=True)
    (table(torch.tensor([1])) * float('inf' if hvd.rank() == 1 else 1)).sum().backward()
    with pytest.raises(FloatingPointError, match='weight holds NaN or infinity on rank 1'):
        optimizer.step()


def test_the_guard_with_large_values_and_sparse_gradients(ranks):
    ranks(2).run(body_guard_overflow)


def body_unwrapped(passes):
    model = network()
    inner = sgd(model.parameters())
    torch.optim.lr_scheduler.StepLR(inner, step_size=100)  # Replaces `step` of the instance.
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters(),
                                         backward_passes_per_step=passes)
    inner.step()  # Nothing is outstanding: no gradient, so nothing moves.
    for step in range(2):
        optimizer.zero_grad()
        for number in range(passes):
            (loss_of(model, data(step, hvd.rank())) / passes).backward()
            with pytest.raises(RuntimeError, match='2.bias waits|0.weight waits'):
                inner.step()
        optimizer.step()
    assert_same(model, train_alone(sgd, 2))
    del optimizer
    loss_of(model, data(0, 0)).backward()
    inner.step()  # The wrapper has gone.


@pytest.mark.parametrize('passes', [1, 2])
def test_a_step_of_the_wrapped_optimizer_itself_is_an_error(ranks, passes):
    ranks(2).run(body_unwrapped, passes)


def body_lone(elastic):
    if elastic:
        os.environ['HOROVOD_ELASTIC'] = '1'
    try:
        model = network()
        optimizer = wrap(model)
    finally:
        os.environ.pop('HOROVOD_ELASTIC', None)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, data(step, 0)).backward()
        optimizer.step()
    assert_same(model, train_alone(sgd, 3))
    # T32: hooks are at work only where ranks may join.
    loss_of(model, data(0, 0)).backward()
    assert optimizer._reducer.under_way == elastic
    if elastic:
        with pytest.raises(AssertionError, match='race condition'):
            optimizer.zero_grad()
        with pytest.raises(AssertionError, match='backward_passes_per_step'):
            loss_of(model, data(0, 0)).backward()
        optimizer.step()
    else:
        loss_of(model, data(0, 0)).backward()
        optimizer.zero_grad()


@pytest.mark.parametrize('elastic', [False, True])
def test_one_rank(ranks, elastic):
    """T32: a job of one rank trains alone, unless HOROVOD_ELASTIC=1."""
    ranks(1).run(body_lone, elastic)


def body_outside():
    os.environ['HOROVOD_DYNAMIC_PROCESS_SETS'] = '1'
    others = hvd.add_process_set([0])
    if hvd.rank() == 0:
        return
    model = network()
    optimizer = wrap(model, process_set=others)
    for _ in range(2):  # As often as one likes: nothing is counted.
        loss_of(model, data(0, hvd.rank())).backward()
    optimizer.step()
    optimizer.synchronize()
    alone = network()
    other = sgd(alone.parameters())
    for _ in range(2):
        loss_of(alone, data(0, hvd.rank())).backward()
    other.step()
    assert all(map(torch.equal, model.parameters(), alone.parameters()))


def test_outside_of_the_process_set_the_optimizer_trains_alone(ranks):
    """T32."""
    ranks(2).run(body_outside)


def body_gan():
    # Both optimizers have gradients at once; names and shapes of the two models are equal.
    def train(wrap_optimizer, inputs):
        one, two = network(), network()
        with torch.no_grad():
            two[0].weight.add_(0.5)
        made = [wrap_optimizer(one), wrap_optimizer(two)]
        for step in range(3):
            for optimizer in made:
                optimizer.zero_grad()
            batch = inputs(step)
            (loss_of(one, batch) + loss_of(two, batch)).backward()
            for optimizer in reversed(made) if step % 2 else made:
                optimizer.step()
            made[0].zero_grad()
            loss_of(one, batch).backward()
            made[0].step()
        return one, two

    pairs = zip(train(wrap, lambda step: data(step, hvd.rank())),
                train(lambda model: sgd(model.parameters()), lambda step: torch.cat(
                    [data(step, rank) for rank in range(hvd.size())])))
    for model, wanted in pairs:
        assert_same(model, wanted)


@pytest.mark.parametrize('size', [2, 3])
def test_two_optimizers_of_one_script_never_collide(ranks, size):
    ranks(size).run(body_gan)


def body_set_to_none():
    model = network()
    for set_to_none in (True, False):
        optimizer = wrap(model)
        loss_of(model, data(0, hvd.rank())).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=set_to_none)
        assert all(parameter.grad is None or not parameter.grad.any()
                   for parameter in model.parameters())
        optimizer.zero_grad()  # T37 without the argument.


def test_zero_grad_takes_set_to_none(ranks):
    """T37."""
    ranks(2).run(body_set_to_none)


def body_state():
    model = network()
    optimizer = wrap(model)
    named = dict(model.named_parameters())
    assert {name: parameter for parameter, name in optimizer._parameter_names.items()} == named
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.5 ** epoch)
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, data(step, hvd.rank())).backward()
        with warnings.catch_warnings():
            warnings.simplefilter('error')
            optimizer.step()
            scheduler.step()
    assert optimizer.param_groups[0]['lr'] == pytest.approx(0.1 / 4)
    saved = optimizer.state_dict()
    other = wrap(network())
    other.load_state_dict(saved)
    assert other.param_groups[0]['lr'] == optimizer.param_groups[0]['lr']
    buffers = [state['momentum_buffer'] for state in other.state.values()]
    assert all(map(torch.equal, buffers, (optimizer.state[parameter]['momentum_buffer']
                                          for parameter in model.parameters())))
    # Parameter names of an optimizer without any, T43.
    unnamed = hvd.DistributedOptimizer(sgd(model.parameters()))
    assert sorted(unnamed._parameter_names.values()) == [f'noname.0.{n}' for n in range(4)]


def test_names_state_and_scheduler(ranks):
    """T31, T38."""
    ranks(2).run(body_state)
