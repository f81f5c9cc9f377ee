# SPDX-License-Identifier: Apache-2.0
"""Elastic training with PyTorch, see rueda.common.elastic.

    state = hvd.elastic.TorchState(model, optimizer, epoch=0)

    @hvd.elastic.run
    def train(state):
        while state.epoch < 10:
            ...
            state.epoch += 1
            state.commit()

    train(state)
"""

import functools

import rueda
from rueda import _session
from rueda.common.elastic import run_fn
from rueda.torch.elastic.sampler import ElasticSampler
from rueda.torch.elastic.state import TorchState

__all__ = ['ElasticSampler', 'TorchState', 'run']


def run(func):
    """Decorates a training function whose first argument is a State. See run_fn() for the rules.

    To be called by all ranks after init(), with no operation between the two. A rank that fails
    alone, while others compute, waits for them in init(): RUEDA_START_TIMEOUT must be longer than
    the time between two operations. When that does not suffice, StartError names the missing rank.

    A new session is of the same ranks (`comm` of init()) and has the process sets, as the same
    objects, that there were when the decorated function was called; their ids count from 1 again.
    Sets that the function adds itself are gone when it is called again, and it adds them again.
    """
    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        return run_fn(func, _reopening())(state, *args, **kwargs)
    return wrapper


def _reopening():
    """A function that ends the session and opens one like the present one."""
    session = _session.current_or_none()
    comm = session and session.comm
    sets = [one for _, one in sorted(session.process_sets.items())] if session else []

    def reset():
        rueda.shutdown()
        rueda.init(comm, sets)
    return reset
