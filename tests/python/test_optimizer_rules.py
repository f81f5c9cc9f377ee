# SPDX-License-Identifier: Apache-2.0
"""Horovod's rules around DistributedOptimizer: arguments, passes, wrapping, several at once."""

import warnings

import pytest
import torch
from training import assert_same, data, loss_of, network, sgd, train_alone, wrap

import rueda.torch as hvd


def body_passes():
    model = network()
    optimizer = wrap(model, backward_passes_per_step=2)
    for step in range(4):
        optimizer.zero_grad()
        for _ in range(2):
            (loss_of(model, data(step, hvd.rank())) / 2).backward()
        optimizer.step()
    assert_same(model, train_alone(sgd, 4))
    # One pass too many; afterwards step() clears the state.
    for _ in range(2):
        loss_of(model, data(0, hvd.rank())).backward()
    with pytest.raises(AssertionError, match='backward_passes_per_step'):
        loss_of(model, data(0, hvd.rank())).backward()
    optimizer.step()
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)
    loss_of(model, data(0, hvd.rank())).backward()
    with pytest.raises(AssertionError, match=r'or optimizer.synchronize\(\). .* race condition'):
        optimizer.zero_grad()
    optimizer.step()
    with pytest.raises(ValueError):
        optimizer.set_backward_passes_per_step(0)


@pytest.mark.row('T35', 'T37', 'T38')
@pytest.mark.parametrize('size', [2, 3])
def test_accumulation_over_several_passes(ranks, size):
    ranks(size).run(body_passes)


def body_no_sync():
    model = network()
    optimizer = wrap(model)
    for step in range(3):
        optimizer.zero_grad()
        with optimizer.no_sync():
            for _ in range(3):
                (loss_of(model, data(step, hvd.rank())) / 4).backward()
        (loss_of(model, data(step, hvd.rank())) / 4).backward()
        optimizer.step()
    assert_same(model, train_alone(sgd, 3))


def test_no_sync_accumulates_without_counting(ranks):
    ranks(2).run(body_no_sync)


def body_operations():
    def gradients(**options):
        model = network()
        optimizer = wrap(model, **options)
        loss_of(model, data(0, hvd.rank())).backward()
        optimizer.synchronize()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    mean = gradients()
    assert torch.allclose(gradients(op=hvd.Sum), mean * hvd.size())
    assert torch.allclose(gradients(gradient_predivide_factor=4.0), mean)
    assert torch.allclose(gradients(groups=2), mean)
    assert torch.allclose(gradients(groups=100), mean)
    with pytest.deprecated_call():
        assert torch.allclose(gradients(num_groups=2), mean)
    with pytest.raises(ValueError, match='predivide'):
        gradients(op=hvd.Sum, gradient_predivide_factor=4.0)
    with pytest.raises(ValueError, match='must be a ProcessSet'):
        gradients(process_set=[0])


@pytest.mark.row('T39', 'T40')
@pytest.mark.parametrize('size', [2, 3])
def test_operation_predivision_and_groups(ranks, size):
    ranks(size).run(body_operations)


def body_explicit_groups():
    model = network()
    parameters = list(model.parameters())
    optimizer = wrap(model, groups=[[parameters[0], parameters[3]], [parameters[1]]])
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, data(step, hvd.rank())).backward()
        optimizer.step()
    names = [sorted(slot.name for slot in bucket.slots) for bucket in optimizer._reducer._buckets]
    assert ['0.weight', '2.bias'] in names and ['0.bias'] in names and ['2.weight'] in names
    assert_same(model, train_alone(sgd, 3))
    for wrong in (-1, 1.5, 'x', [[torch.ones(1)]], [parameters[0]],
                  [[parameters[0]], [parameters[0]]]):
        with pytest.raises(ValueError):
            wrap(model, groups=wrong)


@pytest.mark.row('T40')
def test_explicit_groups(ranks):
    ranks(2).run(body_explicit_groups)


def body_several_optimizers():
    # Equal parameter names, as in a GAN; and a float32 beside a float64 model.
    first, second = network(), network(torch.float32)
    optimizers = [wrap(first), wrap(second, lambda parameters: torch.optim.Adam(parameters))]
    for step in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss_of(first, data(step, hvd.rank())).backward()
        loss_of(second, data(step, hvd.rank(), torch.float32)).backward()
        for optimizer in optimizers:
            optimizer.step()
    assert_same(first, train_alone(sgd, 4))
    assert_same(second, train_alone(lambda parameters: torch.optim.Adam(parameters), 4,
                                    torch.float32), 1e-4)


def test_several_optimizers_with_equal_names(ranks):
    ranks(2).run(body_several_optimizers)


def body_identity():
    model = network()
    model[0].weight.requires_grad = False
    inner = sgd(model.parameters())
    early = torch.optim.lr_scheduler.StepLR(inner, step_size=1, gamma=0.5)
    optimizer = hvd.DistributedOptimizer(inner, named_parameters=model.named_parameters())
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == 'SGD'
    assert optimizer._parameter_names[model[2].bias] == '2.bias'
    late = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    for step in range(2):
        optimizer.zero_grad()
        loss_of(model, data(step, hvd.rank())).backward()
        optimizer.step()
        assert len({tuple(grad) for grad in hvd.allgather_object(
            model[2].bias.grad.tolist())}) == 1, 'a scheduler has bypassed the reduction'
        late.step()
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # It has not seen the wrapped optimizer step.
        early.step()
    assert optimizer.param_groups[0]['lr'] == pytest.approx(0.1 / 8)
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    assert model[0].weight.grad is None
    assert repr(optimizer)


@pytest.mark.row('T31', 'T38')
def test_the_wrapper_is_an_instance_of_the_user_s_class(ranks):
    ranks(2).run(body_identity)


def body_step_hooks():
    if not hasattr(torch.optim.Optimizer, 'register_step_post_hook'):
        return
    model = network()
    optimizer = wrap(model)
    optimizer.load_state_dict(optimizer.state_dict())  # torch wraps `step` again here.
    calls = []
    optimizer.register_step_post_hook(lambda *ignored: calls.append(1))
    loss_of(model, data(0, hvd.rank())).backward()
    optimizer.step()
    assert calls == [1]


def test_step_hooks_run_once(ranks):
    ranks(2).run(body_step_hooks)


def body_added_group():
    model, extra = network(), torch.nn.Linear(2, 2).double()
    torch.nn.init.ones_(extra.weight)
    torch.nn.init.ones_(extra.bias)
    optimizer = wrap(model)
    loss_of(model, data(0, hvd.rank())).backward()
    optimizer.step()
    optimizer.add_param_group({'params': extra.parameters(), 'lr': 0.5})
    for step in range(2):
        optimizer.zero_grad()
        loss_of(extra, model(data(step, hvd.rank()))).backward()
        optimizer.step()
    for parameters in hvd.allgather_object([*model.parameters(), *extra.parameters()]):
        assert all(map(torch.equal, parameters, [*model.parameters(), *extra.parameters()]))
    loss_of(model, data(0, hvd.rank())).backward()
    with pytest.raises(AssertionError):
        optimizer.add_param_group({'params': [torch.nn.Parameter(torch.ones(1))]})
    optimizer.synchronize()


def test_add_param_group_after_wrapping(ranks):
    ranks(2).run(body_added_group)


def body_validation():
    model = network()
    named = list(model.named_parameters())
    optimizer = sgd(model.parameters())
    for wrong in (model.parameters(), [('x', 1)], named[:2],
                  named[:2] + [(named[0][0], named[2][1])],
                  [(1, parameter) for _, parameter in named]):
        with pytest.raises(ValueError):
            hvd.DistributedOptimizer(optimizer, named_parameters=wrong)
    for passes in (0, -1):
        with pytest.raises(ValueError):
            hvd.DistributedOptimizer(optimizer, backward_passes_per_step=passes)
    with pytest.raises(ValueError, match='complex'):
        hvd.DistributedOptimizer(torch.optim.SGD(
            [torch.nn.Parameter(torch.empty(2, dtype=torch.complex32))], lr=0.1))


@pytest.mark.row('T43')
def test_arguments_are_checked(ranks):
    ranks(2).run(body_validation)


def body_other_models():
    model = network(width=7 if hvd.rank() == 0 else 9)
    optimizer = wrap(model)
    with pytest.raises(hvd.MismatchError) as caught:
        loss_of(model, data(0, hvd.rank())).backward()
        optimizer.step()
    assert '0.weight' in str(caught.value) and '(7, 4)' in str(caught.value), caught.value
    assert '(9, 4)' in str(caught.value)


def test_ranks_with_other_models_are_told_which_parameter_differs(ranks):
    ranks(2).run(body_other_models)


def body_across_sessions():
    model = network()
    optimizer = wrap(model)
    aliases = []
    for session in range(3):
        loss_of(model, data(session, hvd.rank())).backward()
        optimizer.step()
        hvd.barrier()
        small = wrap(torch.nn.Linear(1, 1).double())
        small.param_groups[0]['params'][0].sum().backward()
        small.synchronize()
        for gradient in (model[0].weight.grad, small.param_groups[0]['params'][0].grad):
            aliases.append((gradient, gradient.clone()))
        kept = [parameter.grad.clone() for parameter in model.parameters()]
        hvd.shutdown()
        assert all(map(torch.equal, kept, (parameter.grad for parameter in model.parameters())))
        for alias, value in aliases:  # Of memory of sessions that have ended.
            assert torch.equal(alias, value)
            alias.add_(0.0)
        hvd.init()
        optimizer.zero_grad()
    assert_same(model, train_alone(sgd, 3))


def test_gradients_and_optimizers_outlive_a_session(ranks):
    ranks(2).run(body_across_sessions)


def body_memory_is_given_back():
    import gc
    from rueda import _native
    made, freed = [], []
    real = _native.block_buffer

    def spy(address, count, release):
        made.append(address)
        return real(address, count, lambda: (freed.append(address), release()))

    _native.block_buffer = spy
    try:
        for _ in range(3):
            model = network()
            optimizer = wrap(model)
            loss_of(model, data(0, hvd.rank())).backward()
            optimizer.step()
            del optimizer, model
            gc.collect()
    finally:
        _native.block_buffer = real
    assert len(made) >= 3 and sorted(freed) == sorted(made)


def test_an_optimizer_that_has_gone_leaves_nothing(ranks):
    ranks(2).run(body_memory_is_given_back)
