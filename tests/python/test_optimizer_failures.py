# SPDX-License-Identifier: Apache-2.0
"""A step of DistributedOptimizer that fails on the way leaves nothing for the next one."""

import pytest
import torch
from training import network

import rueda.torch as hvd
from rueda import _session


def give_gradients(model, value):
    """Without backward: nothing starts early, so step() starts what has not been started."""
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, value * (hvd.rank() + 1))


def check_gradients(model, value):
    wanted = value * (hvd.size() + 1) / 2
    for parameter in model.parameters():
        assert torch.equal(parameter.grad, torch.full_like(parameter, wanted)), parameter.grad


def nothing_in_flight():
    return not _session.current().handles._pending


def body_guard():
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), groups=3,
                                         nan_guard=True)
    give_gradients(model, 1.0)
    optimizer.step()
    guard = optimizer._reducer._guard
    for error in (hvd.HorovodInternalError('of the guard'), MemoryError()):
        give_gradients(model, 8.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(guard, 'agree', lambda: raising(error))
            with pytest.raises(type(error)):
                optimizer.step()
        assert nothing_in_flight()
        assert not any(bucket.launched for bucket in optimizer._reducer._buckets)
        give_gradients(model, 2.0)
        optimizer.step()
        check_gradients(model, 2.0)


def raising(error):
    raise error


def test_a_step_after_one_whose_guard_failed(ranks):
    # What that one had started stayed, and its sums were the gradients of this one.
    ranks(2).run(body_guard)


class Failing(hvd.Compressor):
    """Fails in the given call, counted from 1, of `compress` or `decompress`."""

    calls = fails_at = 0
    where = 'compress'

    @classmethod
    def count(cls, where):
        if where == cls.where:
            cls.calls += 1
            if cls.calls == cls.fails_at:
                raise KeyError('of the compressor')

    @classmethod
    def compress(cls, tensor):
        cls.count('compress')
        return tensor.clone(), None

    @classmethod
    def decompress(cls, tensor, ctx):
        cls.count('decompress')
        return tensor


def body_compressor(where):
    model = network()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0),
                                         compression=Failing)
    Failing.where, Failing.calls, Failing.fails_at = where, 0, 3
    give_gradients(model, 8.0)
    with pytest.raises(KeyError):
        optimizer.step()
    assert nothing_in_flight()
    give_gradients(model, 2.0)
    optimizer.step()
    check_gradients(model, 2.0)


@pytest.mark.parametrize('where', ['compress', 'decompress'])
def test_a_step_after_one_whose_compressor_failed(ranks, where):
    ranks(2).run(body_compressor, where)
