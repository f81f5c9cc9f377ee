# SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: the same training as in one process, and Horovod's rules around it."""

import warnings

import pytest
import torch

import rueda.torch as hvd
from rueda.torch import buckets

BATCH = 6


def network(dtype=torch.float64, width=7):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(),
                               torch.nn.Linear(width, 2)).to(dtype)


def data(step, rank, dtype=torch.float64):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(BATCH, 4, generator=generator, dtype=torch.float64).to(dtype)


def loss_of(model, inputs):
    return (model(inputs) - 1.0).pow(2).mean()


def train_alone(make, steps, dtype=torch.float64, width=7):
    """What one process makes of the data of all ranks."""
    model = network(dtype, width)
    optimizer = make(model.parameters())
    for step in range(steps):
        optimizer.zero_grad()
        inputs = torch.cat([data(step, rank, dtype) for rank in range(hvd.size())])
        loss_of(model, inputs).backward()
        optimizer.step()
    return model


def assert_same(model, wanted, tolerance=1e-9):
    for parameter, other in zip(model.parameters(), wanted.parameters()):
        assert torch.allclose(parameter, other, rtol=tolerance, atol=tolerance), (
            (parameter - other).abs().max())
    for parameters in hvd.allgather_object(list(model.parameters())):
        for one, other in zip(model.parameters(), parameters):
            assert torch.equal(one, other), 'ranks have other bits'


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


def wrap(model, make=sgd, **options):
    return hvd.DistributedOptimizer(make(model.parameters()),
                                    named_parameters=model.named_parameters(), **options)


def body_parity(kind, set_to_none):
    make = {'sgd': sgd, 'adam': lambda parameters: torch.optim.Adam(parameters, lr=0.01)}[kind]
    model = network()
    optimizer = wrap(model, make)
    for step in range(10):
        optimizer.zero_grad(set_to_none=set_to_none)
        loss_of(model, data(step, hvd.rank())).backward()
        optimizer.step()
    assert_same(model, train_alone(make, 10))


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
        started = [bucket.launched for bucket in optimizer._reducer._buckets]
        assert len(started) > 1 and all(started[:-1]) and not started[-1]
        optimizer.step()
        other.zero_grad()
        loss_of(alone, torch.cat(inputs)).backward()
        other.step()
    assert_same(model, alone, 1e-4)


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
    with pytest.raises(AssertionError, match='race condition'):
        optimizer.zero_grad()
    optimizer.step()
    with pytest.raises(ValueError):
        optimizer.set_backward_passes_per_step(0)


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
    compression = {'fp16': hvd.Compression.fp16, 'own': Halver}[kind]
    model = network(torch.float32)
    optimizer = wrap(model, compression=compression, backward_passes_per_step=2)
    for step in range(4):
        optimizer.zero_grad()
        for _ in range(2):
            (loss_of(model, data(step, hvd.rank(), torch.float32)) / 2).backward()
        optimizer.step()
        assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())
    assert_same(model, train_alone(sgd, 4, torch.float32), 3e-3 if kind == 'fp16' else 1e-5)


@pytest.mark.parametrize('kind', ['fp16', 'own'])
def test_compression(ranks, kind):
    ranks(2).run(body_compression, kind)


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
    with pytest.raises(NotImplementedError):
        gradients(op=hvd.Adasum)
    with pytest.raises(NotImplementedError):
        gradients(process_set=[0])


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


def embedding_step(**options):
    torch.manual_seed(0)
    model = torch.nn.Embedding(10, 3, sparse=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), **options)
    before = model.weight.detach().clone()
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.tensor([hvd.rank(), 5])).sum().backward()
        optimizer.step()
    return before - model.weight.detach()


def body_sparse():
    change = embedding_step(sparse_as_dense=True)
    wanted = torch.zeros(10, 3)
    wanted[:hvd.size()] = 2.0 / hvd.size()
    wanted[5] = 2.0
    assert torch.allclose(change, wanted)
    with pytest.raises(ValueError, match='sparse_as_dense'):
        embedding_step()


def test_sparse_gradients(ranks):
    ranks(2).run(body_sparse)


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


def body_validation():
    model = network()
    named = list(model.named_parameters())
    optimizer = sgd(model.parameters())
    for wrong in (model.parameters(), [('x', 1)], named[:2], named[:2] + [(named[0][0], named[2][1])],
                  [(1, parameter) for _, parameter in named]):
        with pytest.raises(ValueError):
            hvd.DistributedOptimizer(optimizer, named_parameters=wrong)
    for passes in (0, -1):
        with pytest.raises(ValueError):
            hvd.DistributedOptimizer(optimizer, backward_passes_per_step=passes)
    with pytest.raises(ValueError, match='complex'):
        hvd.DistributedOptimizer(torch.optim.SGD(
            [torch.nn.Parameter(torch.ones(2, dtype=torch.complex64))], lr=0.1))


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
    for session in range(3):
        loss_of(model, data(session, hvd.rank())).backward()
        optimizer.step()
        hvd.barrier()
        kept = [parameter.grad.clone() for parameter in model.parameters()]
        hvd.shutdown()
        assert all(map(torch.equal, kept, (parameter.grad for parameter in model.parameters())))
        hvd.init()
        optimizer.zero_grad()
    assert_same(model, train_alone(sgd, 3))


def test_gradients_and_optimizers_outlive_a_session(ranks):
    ranks(2).run(body_across_sessions)


def body_memory_is_given_back():
    import gc
    from rueda import _native
    freed = []
    real = _native.block_buffer

    def spy(address, count, release):
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
    assert len(freed) == 3


def test_an_optimizer_that_has_gone_leaves_nothing(ranks):
    ranks(2).run(body_memory_is_given_back)


def slots(*sizes, dtypes=None):
    return [buckets.Slot(torch.empty(size, dtype=(dtypes or {}).get(index, torch.float32)),
                         str(index), 1) for index, size in enumerate(sizes)]


def names(plan):
    return [[slot.name for slot in bucket] for bucket in plan]


def test_a_small_model_is_one_bucket_in_reverse_order():
    assert names(buckets.plan(slots(10, 20, 30), [])) == [['2', '1', '0']]


def test_a_large_model_is_cut_by_size():
    million = 1 << 20
    assert names(buckets.plan(slots(million, million, million, million), [])) == [
        ['3', '2'], ['1', '0']]
    assert names(buckets.plan(slots(5 * million, 10), [])) == [['1'], ['0']]


def test_a_bucket_has_one_dtype_and_groups_stay_together():
    mixed = slots(10, 20, 30, dtypes={1: torch.float64})
    assert names(buckets.plan(mixed, [])) == [['1'], ['2', '0']]
    grouped = slots(10, 20, 30, 40)
    plan = buckets.plan(grouped, [[grouped[0], grouped[2]], [grouped[3]]])
    assert names(plan) == [['3'], ['1'], ['2', '0']]
