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

import rueda
from rueda.common.elastic import run_fn
from rueda.torch.elastic.sampler import ElasticSampler
from rueda.torch.elastic.state import TorchState

__all__ = ['ElasticSampler', 'TorchState', 'run']


def run(func):
    """Decorates a training function whose first argument is a State. See run_fn() for the rules.

    To be called by all ranks after init(), with no operation between the two. A rank that fails
    alone, while others compute, waits for them in init(): RUEDA_START_TIMEOUT must be longer than
    the time between two operations. When that does not suffice, StartError names the missing rank.
    """
    return run_fn(func, _reset)


def _reset():
    rueda.shutdown()
    rueda.init()
