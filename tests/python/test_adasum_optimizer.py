# SPDX-License-Identifier: Apache-2.0
"""T42: the optimizer for op=Adasum, which reduces what a local step does.

Here by average and sum, whose results are known; only the last test needs Adasum itself.
"""

import pytest
import torch
from training import data, loss_of, network, sgd

import rueda.torch as hvd
from rueda.torch import adasum_optimizer
from rueda.torch.settings import Settings


def adasum(model, op=hvd.Average, make=sgd, passes=1, **options):
    names = {parameter: name for name, parameter in model.named_parameters()}
    return adasum_optimizer.wrap(make(model.parameters()), names, Settings(op, **options), passes)


def one_step_everywhere(model, others, step, op):
    """What the step of `model` comes to, from the local steps of all ranks on copies."""
    starts = [parameter.detach().clone() for parameter in model.parameters()]
    total = [torch.zeros_like(start) for start in starts]
    for rank, (copy, optimizer) in enumerate(others):
        copy.load_state_dict(model.state_dict())
        optimizer.zero_grad()
        loss_of(copy, data(step, rank)).backward()
        optimizer.step()
        for sum_, parameter, start in zip(total, copy.parameters(), starts):
            sum_.add_(parameter.detach() - start)
    divisor = len(others) if op == hvd.Average else 1
    return [start + sum_ / divisor for start, sum_ in zip(starts, total)]


def body_deltas(op, compression):
    model = network()
    optimizer = adasum(model, op, compression=getattr(hvd.Compression, compression))
    assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == 'SGD'
    copies = [network() for _ in range(hvd.size())]
    others = [(copy, sgd(copy.parameters())) for copy in copies]
    for step in range(4):
        wanted = one_step_everywhere(model, others, step, op)
        optimizer.zero_grad()
        loss_of(model, data(step, hvd.rank())).backward()
        optimizer.step()
        tolerance = 1e-9 if compression == 'none' else 1e-2
        assert all(torch.allclose(one, other, rtol=tolerance, atol=tolerance)
                   for one, other in zip(model.parameters(), wanted))
        for parameters in hvd.allgather_object(list(model.parameters())):
            assert all(map(torch.equal, parameters, model.parameters()))


@pytest.mark.parametrize('size', [2, 3])
@pytest.mark.parametrize('op', [hvd.Average, hvd.Sum])
def test_deltas_of_local_steps_are_reduced(ranks, size, op):
    ranks(size).run(body_deltas, op, 'none')


def test_compression(ranks):
    ranks(2).run(body_deltas, hvd.Average, 'fp16')


def body_passes():
    model = network()
    optimizer = adasum(model, passes=2)
    alone = network()
    other = sgd(alone.parameters())
    for step in range(2):
        optimizer.zero_grad()
        other.zero_grad()
        for _ in range(2):  # The same data on all ranks: the mean of equal deltas.
            loss_of(model, data(step, 0)).backward()
            loss_of(alone, data(step, 0)).backward()
        with pytest.raises(AssertionError, match='backward_passes_per_step'):
            loss_of(model, data(step, 0)).backward()
        with pytest.raises(AssertionError, match=r'before optimizer.step\(\). .* race condition'):
            optimizer.zero_grad()
        for parameter, kept in zip(model.parameters(), alone.parameters()):
            parameter.grad.copy_(kept.grad)  # Without the pass that was refused.
        optimizer.step()
        other.step()
        assert all(map(torch.allclose, model.parameters(), alone.parameters()))
    optimizer.zero_grad()
    optimizer.set_backward_passes_per_step(1)
    loss_of(model, data(0, 0)).backward()
    optimizer.step()
    with pytest.raises(ValueError):
        optimizer.set_backward_passes_per_step(0)


def test_several_backward_passes(ranks):
    ranks(2).run(body_passes)


def body_rules():
    model = network()
    inner = sgd(model.parameters())
    names = {parameter: name for name, parameter in model.named_parameters()}
    optimizer = adasum_optimizer.wrap(inner, names, Settings(hvd.Average), 1)
    with pytest.raises(AssertionError, match='skip_synchronize'):
        with optimizer.skip_synchronize():
            pass
    with pytest.raises(NotImplementedError, match='global process set'):
        adasum(model, process_set=hvd.ProcessSet([0]))
    loss_of(model, data(0, hvd.rank())).backward()
    with pytest.raises(RuntimeError, match='waits to be reduced'):
        inner.step()
    with pytest.raises(AssertionError):
        optimizer.add_param_group({'params': [torch.nn.Parameter(torch.ones(1))]})
    optimizer.synchronize()  # Allowed, and nothing happens.
    optimizer.step()
    extra = torch.nn.Parameter(torch.ones(2))
    optimizer.add_param_group({'params': [extra]})
    optimizer.zero_grad()
    with optimizer.no_sync():
        (extra * (hvd.rank() + 1)).sum().backward()
    (extra * (hvd.rank() + 1)).sum().backward()
    assert optimizer._parameter_names[extra] == 'noname.1.0'
    optimizer.step()
    assert all(torch.equal(extra.detach(), at) for at in hvd.allgather_object(extra.detach()))
    # T34: on one rank without any gradient, the parameters stay equal.
    optimizer.zero_grad()
    if hvd.rank() == 0:
        loss_of(model, data(1, 0)).backward()
    optimizer.step()
    assert all(torch.equal(extra.detach(), at) for at in hvd.allgather_object(extra.detach()))


def body_session_ends():
    model = network()
    optimizer = adasum(model)
    loss_of(model, data(0, hvd.rank())).backward()
    hvd.shutdown()
    hvd.init()
    optimizer.zero_grad()  # The step that was under way is given up.
    loss_of(model, data(0, hvd.rank())).backward()
    optimizer.step()
    hvd.assert_in_sync(model)


def test_a_session_that_ends_within_a_step(ranks):
    ranks(2).run(body_session_ends)


@pytest.mark.row('T42')
def test_rules(ranks):
    ranks(2).run(body_rules)


def body_closure_and_guard():
    model = network()
    optimizer = adasum(model)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, data(0, hvd.rank()))
        loss.backward()
        return loss
    assert optimizer.step(closure) > 0
    for parameters in hvd.allgather_object(list(model.parameters())):
        assert all(map(torch.equal, parameters, model.parameters()))
    guarded = adasum(model, nan_guard=True)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    guarded.zero_grad()
    loss_of(model, data(0, hvd.rank())).backward()
    if hvd.rank() == 1:
        model[0].bias.grad[0] = float('nan')
    with pytest.raises(FloatingPointError, match='0.bias holds NaN or infinity on rank 1'):
        guarded.step()
    assert all(map(torch.equal, before, model.parameters()))


def test_closure_and_nan_guard(ranks):
    ranks(2).run(body_closure_and_guard)


def body_adasum():
    model = network(torch.float32)
    optimizer = hvd.DistributedOptimizer(sgd(model.parameters()), op=hvd.Adasum)
    for step in range(3):
        optimizer.zero_grad()
        loss_of(model, data(step, 0, torch.float32)).backward()  # Equal on all ranks.
        optimizer.step()
    alone = network(torch.float32)
    other = sgd(alone.parameters())
    for step in range(3):
        other.zero_grad()
        loss_of(alone, data(step, 0, torch.float32)).backward()
        other.step()
    # Adasum of equal vectors is that vector.
    assert all(torch.allclose(one, two, rtol=1e-4, atol=1e-6)
               for one, two in zip(model.parameters(), alone.parameters()))


def test_adasum_of_equal_deltas(ranks):
    ranks(2).run(body_adasum)
