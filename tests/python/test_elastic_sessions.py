# SPDX-License-Identifier: Apache-2.0
"""What of a session there is again in the one that an elastic training opens after a failure."""

import os

import pytest
import torch

import rueda.torch as hvd


def fail_once(body):
    """Runs `body()` in an elastic loop, and again after a failure; returns both results."""
    results = []

    @hvd.elastic.run
    def loop(state):
        results.append(body())
        hvd.barrier()  # All ranks fail at one place.
        if len(results) == 1:
            raise hvd.HorovodInternalError('raised by the test')

    loop(hvd.elastic.TorchState(epoch=0))
    return results


def body_comm():
    hvd.shutdown()
    place = int(os.environ['RUEDA_RANK'])
    hvd.init(comm=[0, 2] if place != 1 else [1])
    return fail_once(lambda: (hvd.rank(), hvd.size(), hvd.allreduce(
        torch.tensor([float(place)]), op=hvd.Sum).item()))


@pytest.mark.row('E04')
def test_the_job_is_still_that_of_comm(ranks):
    # The new session was one of all ranks.
    assert ranks(3).run(body_comm) == [[[0, 2, 2.0]] * 2, [[0, 1, 1.0]] * 2, [[1, 2, 2.0]] * 2]


def body_sets(way):
    hvd.shutdown()
    os.environ.pop('HOROVOD_DYNAMIC_PROCESS_SETS', None)
    sets = [hvd.ProcessSet([0]), hvd.ProcessSet([0, 1]), hvd.ProcessSet([1, 2])]
    if way == 'dynamic':
        hvd.init(process_sets='dynamic')
        for one in sets:
            hvd.add_process_set(one)
        hvd.remove_process_set(sets.pop(0))
    else:
        hvd.init(process_sets=sets)
        sets.pop(0)
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0),
                                         process_set=sets[1])
    own = []

    def body():
        if way == 'dynamic':  # Of the function itself: gone when it is called again.
            own.append(hvd.add_process_set([0, 2]).included())
        optimizer.zero_grad()
        model(torch.full((1, 1), float(hvd.rank()))).sum().backward()
        optimizer.step()
        assert all(one.process_set_id for one in sets)
        totals = [hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=one).item()
                  for one in sets if one.included()]
        return [model.weight.grad.item(), *totals]

    results = fail_once(body)
    assert len(own) == (2 if way == 'dynamic' else 0)
    return results


@pytest.mark.row('E04')
@pytest.mark.parametrize('way', ['dynamic', 'listed'])
def test_process_sets_are_registered_again(ranks, way):
    # They were not, and an optimizer of one went on without the other ranks.
    assert ranks(3).run(body_sets, way) == [[[0.0, 2.0]] * 2, [[1.5, 2.0, 2.0]] * 2,
                                            [[1.5, 2.0]] * 2]
