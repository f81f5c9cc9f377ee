# SPDX-License-Identifier: Apache-2.0
"""Elastic state of PyTorch objects, the sampler, and training that fails and goes on."""

import os

import pytest
import torch

import rueda
import rueda.torch as hvd
from rueda.common.elastic import HostUpdateResult, notification_manager
from rueda.torch.elastic import state as states

BATCH = 3


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6),
                               torch.nn.Linear(6, 2)).double()


def take_steps(model, optimizer, count):
    for step in range(count):
        torch.manual_seed(step)
        optimizer.zero_grad()
        model(torch.randn(8, 4, dtype=torch.float64)).pow(2).sum().backward()
        optimizer.step()


def numbers(model, optimizer):
    """Everything that training changes, as one list of tensors."""
    slots = [value for slots in optimizer.state_dict()['state'].values()
             for value in slots.values()]
    return [torch.as_tensor(value).clone() for value in (*model.state_dict().values(), *slots)]


def same(values, others):
    return len(values) == len(others) and all(map(torch.equal, values, others))


def body_restore():
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    state = hvd.elastic.TorchState(model, optimizer, epoch=1)
    assert state.model is model and state.optimizer is optimizer and state.epoch == 1
    at_start = numbers(model, optimizer)
    for _ in range(2):
        take_steps(model, optimizer, 2)
        optimizer.param_groups[0]['lr'] = 0.5
        state.epoch = 2
        state.restore()
        assert same(numbers(model, optimizer), at_start), 'not what it was when it was made'
        assert optimizer.param_groups[0]['lr'] == 0.1 and state.epoch == 1
        assert all(parameter.grad is None for parameter in model.parameters())
    take_steps(model, optimizer, 3)
    state.commit()
    committed = numbers(model, optimizer)
    # Twice: torch 2 loads slots without a copy, so the optimizer wrote into what was saved.
    for _ in range(2):
        take_steps(model, optimizer, 2)
        assert not same(numbers(model, optimizer), committed)
        state.restore()
        assert same(numbers(model, optimizer), committed)
    assert state.model is model, 'restore() made another object'


@pytest.mark.row('E08')
def test_restore_goes_back_to_the_last_commit(ranks):
    ranks(2).run(body_restore)


def body_assignment():
    state = hvd.elastic.TorchState(network(0), epoch=0)
    assert state.optimizer is None
    other = network(1)
    wanted = [value.clone() for value in other.state_dict().values()]
    state.model = other
    with torch.no_grad():
        other[0].weight.zero_()
    state.restore()
    assert state.model is other
    assert same(list(other.state_dict().values()), wanted), 'the new model was not saved'


@pytest.mark.row('E08')
def test_an_assigned_model_is_saved(ranks):
    ranks(2).run(body_assignment)


def body_sync():
    rank = hvd.rank()
    model = network(rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1), momentum=0.9)
    if rank == 0:
        take_steps(model, optimizer, 2)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(range(20))
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler,
                                   second=network(10 + rank), epoch=rank, history=[rank])
    if rank == 0:
        sampler.record_batch(0, 2)
    # Rank 0's present state, which it has not committed.
    state.epoch += 5
    state.sync()
    for values in hvd.allgather_object(numbers(model, optimizer)):
        assert same(values, numbers(model, optimizer)), 'ranks differ'
    assert same(list(state.second.state_dict().values()), list(network(10).state_dict().values()))
    assert optimizer.param_groups[0]['lr'] == 0.1
    assert (state.epoch, state.history) == (5, [0])
    assert sampler.state_dict() == {'epoch': 0, 'processed_num': 2 * hvd.size()}
    synchronised = numbers(model, optimizer)
    state.epoch = 9
    sampler.set_epoch(1)
    with torch.no_grad():
        model[0].weight.zero_()
    state.restore()
    assert same(numbers(model, optimizer), synchronised), 'sync() did not save'
    assert state.epoch == 5 and sampler.state_dict()['epoch'] == 0


@pytest.mark.row('E08')
@pytest.mark.parametrize('size', [2, 3])
def test_sync_gives_all_ranks_the_state_of_rank_0(ranks, size):
    ranks(size).run(body_sync)


def body_registry():
    class Counter:
        count = 0

    class CounterHandler(states.StateHandler):
        def save(self):
            self.saved = self.value.count

        def restore(self):
            self.value.count = self.saved

        def sync(self):
            self.value.count = hvd.broadcast_object(self.value.count)

    before = states.get_handler_registry()
    assert [kind for kind, _ in before] == [torch.nn.Module, torch.optim.Optimizer,
                                            hvd.elastic.ElasticSampler]
    try:
        states.set_handler_registry([(Counter, CounterHandler), *before])
        state = hvd.elastic.TorchState(network(), counter=Counter())
        state.counter.count = 4 + hvd.rank()
        state.sync()
        assert state.counter.count == 4
        state.counter.count = 7
        state.restore()
        assert state.counter.count == 4
    finally:
        states.set_handler_registry(before)


@pytest.mark.row('E08', 'T51')
def test_programs_may_add_handlers(ranks):
    ranks(2).run(body_registry)


def body_news():
    state = hvd.elastic.TorchState(epoch=0)
    state.check_host_updates()
    # What other ranks than 0 hear does not count.
    if hvd.rank() == 1:
        state.on_hosts_updated(1, HostUpdateResult.added)
    state.commit()
    if hvd.rank() == 0:
        state.on_hosts_updated(2, HostUpdateResult.removed)
    with pytest.raises(rueda.exceptions.HostsUpdatedInterrupt) as caught:
        state.commit()
    assert caught.value.skip_sync
    state.check_host_updates()


@pytest.mark.row('E02')
def test_all_ranks_are_interrupted_at_one_place(ranks):
    ranks(3).run(body_news)


def gathered(sampler):
    """What all ranks get, as one list in the order in which it is dealt out."""
    shares = hvd.allgather_object(list(sampler))
    assert len({len(share) for share in shares}) == 1, 'ranks get different numbers'
    assert len(shares[0]) == len(sampler)
    return [index for turn in zip(*shares) for index in turn]


def body_sampler():
    size = hvd.size()
    ordered = hvd.elastic.ElasticSampler(range(10), shuffle=False)
    # 10 do not divide by 3 and 4 ranks: the first ones come again.
    assert gathered(ordered) == (list(range(10)) + list(range(10)))[:-(-10 // size) * size]
    ordered.record_batch(0, 1)
    ordered.record_batch(1, 1)
    assert len(ordered) == -(-10 // size), 'a recorded batch changed the present iterator'
    ordered.reset()
    assert ordered.remaining_indices == list(range(2 * size, 10))
    assert set(gathered(ordered)) == set(range(2 * size, 10))
    # Fewer left than ranks: repeated until each has one.
    ordered.load_state_dict({'epoch': 0, 'processed_num': 9})
    assert gathered(ordered) == [9] * size
    ordered.load_state_dict({'epoch': 0, 'processed_num': 12})  # The repeated ones count, too.
    assert gathered(ordered) == [] and len(ordered) == 0

    mixed = hvd.elastic.ElasticSampler(range(4 * size), seed=3)
    first = gathered(mixed)
    assert sorted(first) == list(range(4 * size)) and first != sorted(first)
    assert first == gathered(hvd.elastic.ElasticSampler(range(4 * size), seed=3))
    assert first != gathered(hvd.elastic.ElasticSampler(range(4 * size), seed=4))
    mixed.record_batch(0, 2)
    saved = mixed.state_dict()
    assert saved == {'epoch': 0, 'processed_num': 2 * size}
    mixed.set_epoch(1)
    assert mixed.state_dict() == {'epoch': 1, 'processed_num': 0}
    assert sorted(gathered(mixed)) == list(range(4 * size)) and gathered(mixed) != first
    mixed.load_state_dict(saved)
    assert gathered(mixed) == first[2 * size:], 'the rest of the epoch is another one'


@pytest.mark.row('E09')
@pytest.mark.parametrize('size', [2, 3, 4])
def test_sampler(ranks, size):
    ranks(size).run(body_sampler)


class Faults:
    """Raises once in each of the given steps, at the given place and on the given ranks."""

    def __init__(self, steps, place, ranks, kind):
        self.left = set(steps)
        self.place, self.ranks, self.kind = place, ranks, kind
        self.count = 0

    def __call__(self, place, step):
        if place != self.place or step not in self.left:
            return
        self.left.remove(step)
        if hvd.rank() not in self.ranks:
            return
        self.count += 1
        if self.kind == 'mismatch':
            hvd.allreduce(torch.ones(2 + hvd.rank()), name='of other shapes')
        elif self.kind == 'update':
            if hvd.rank() == 0:
                notification_manager.handle_hosts_updated(step + 1, HostUpdateResult.added)
        else:
            raise hvd.HorovodInternalError('raised by the test')


def loss_of(model, rows):
    return (model(rows) - rows.sum(1, keepdim=True)).pow(2).mean()


def train(steps=(), place='', ranks=(), kind='raise', width=6, commit_every=2):
    """Two epochs; returns (parameters and slots at the end, failures here, resets, losses)."""
    torch.manual_seed(7)
    data = torch.randn(8 * BATCH * hvd.size(), 4, dtype=torch.float64)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(),
                                torch.nn.Linear(width, width), torch.nn.Linear(width, 1)).double()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.06 / width, momentum=0.9),
        named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(data, seed=1)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=sampler)
    state = hvd.elastic.TorchState(model, optimizer, sampler=sampler, epoch=0, step=0, losses=[])
    resets = []
    state.register_reset_callbacks([lambda: resets.append(hvd.size())])
    faults = Faults(steps, place, ranks, kind)

    @hvd.elastic.run
    def loop(state):
        while state.epoch < 2:
            for index, rows in enumerate(loader):
                faults('before', state.step)
                optimizer.zero_grad()
                loss = loss_of(model, rows)
                loss.backward()
                faults('after backward', state.step)
                optimizer.step()
                sampler.record_batch(index, BATCH)
                state.losses.append(hvd.allreduce(loss.detach()).item())
                state.step += 1
                if state.step % commit_every == 0:
                    state.commit()
            sampler.set_epoch(state.epoch + 1)
            state.epoch += 1
            state.commit()
        return 'trained'

    assert loop(state) == 'trained'
    assert state.step == len(state.losses) == 16, 'batches were left out or done twice'
    return numbers(model, optimizer), faults.count, resets, state.losses


def body_failures(faults, resets):
    wanted, _, none, losses = train(width=faults.get('width', 6))
    assert none == [] and sum(losses[8:]) < sum(losses[:8]), losses
    values, count, seen, repeated = train(**faults)
    assert count == (resets if hvd.rank() in faults['ranks'] else 0)
    assert seen == [hvd.size()] * resets
    assert same(values, wanted), 'other parameters than without the failure'
    assert repeated == losses


FAILURES = {
    'everywhere': {'steps': [5], 'place': 'before', 'ranks': [0, 1, 2]},
    'between backward and step': {'steps': [5], 'place': 'after backward', 'ranks': [0, 1, 2]},
    'before the first commit': {'steps': [0], 'place': 'after backward', 'ranks': [0, 1, 2]},
    'in the second epoch': {'steps': [13], 'place': 'before', 'ranks': [0, 1, 2]},
    # The others learn of it from an operation that ends, in step() or already in backward().
    'rank 0 alone': {'steps': [0], 'place': 'before', 'ranks': [0]},
    'rank 1 alone': {'steps': [5], 'place': 'before', 'ranks': [1]},
    'rank 1 alone after backward': {'steps': [4], 'place': 'after backward', 'ranks': [1]},
    'a large model': {'steps': [3], 'place': 'before', 'ranks': [1], 'width': 1100},
    'twice at one rank': {'steps': [5, 9], 'place': 'before', 'ranks': [1]},
    'a real one': {'steps': [5], 'place': 'before', 'ranks': [0, 1, 2], 'kind': 'mismatch'},
    # Keeps what is done: step 5 is not committed when it happens, the commit after it tells.
    'other hosts': {'steps': [5], 'place': 'before', 'ranks': [0, 1, 2], 'kind': 'update'},
}


@pytest.mark.row('E04', 'E13', 'T51')
@pytest.mark.parametrize('name', FAILURES)
@pytest.mark.parametrize('size', [2, 3])
def test_training_that_fails_ends_as_if_it_had_not(ranks, size, name):
    faults = dict(FAILURES[name])
    faults['ranks'] = [rank for rank in faults['ranks'] if rank < size]
    ranks(size).run(body_failures, faults, len(faults['steps']))


def body_rank_that_does_not_come_back():
    @hvd.elastic.run
    def loop(state):
        if hvd.rank() == 1:
            raise KeyError('a fault of the script')
        hvd.barrier()

    state = hvd.elastic.TorchState(epoch=0)
    if hvd.rank() == 1:
        with pytest.raises(KeyError):
            loop(state)
        hvd.shutdown()
        return
    os.environ['RUEDA_START_TIMEOUT'] = '1'
    try:
        with pytest.raises(rueda.exceptions.StartError, match=r'ranks \[1\]'):
            loop(state)
    finally:
        del os.environ['RUEDA_START_TIMEOUT']


def test_a_rank_that_does_not_come_back_is_named(ranks):
    # The ranks stay the same ones: the loop ends instead of waiting for ever.
    ranks(2).run(body_rank_that_does_not_come_back, seconds=30)
