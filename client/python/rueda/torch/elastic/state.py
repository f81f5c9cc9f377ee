# SPDX-License-Identifier: Apache-2.0
"""The state of a training with PyTorch, and how each kind of object in it is kept.

Handlers are chosen by type from a registry, which programs may replace. Threads as for State.
"""

import copy

import torch

import rueda
from rueda.common.elastic import ObjectState
from rueda.torch.elastic.sampler import ElasticSampler
from rueda.torch.functions import broadcast_optimizer_state, broadcast_parameters
from rueda.torch.objects import broadcast_object


class StateHandler:
    """Keeps one object of a state that has state_dict() and load_state_dict().

    Subclasses say in sync() how ranks agree.
    """

    def __init__(self, value):
        self.set_value(value)

    def set_value(self, value):
        """Takes another object in place of the present one, and saves it."""
        self.value = value
        self.save()

    def save(self):
        """Keeps a copy of the object's state in memory."""
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self):
        """Loads the copy, which stays as it is: an optimizer would go on to write into it."""
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self):
        """Gives this rank the present state of rank 0; does not save it. Blocking."""
        raise NotImplementedError

    def reset(self):
        """Takes over what a new session says. Nothing by default."""


class ModelStateHandler(StateHandler):
    """Keeps parameters and buffers of a torch.nn.Module."""

    def sync(self):
        """Broadcasts them in place."""
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(StateHandler):
    """Keeps slots and options of a torch.optim.Optimizer, also of a DistributedOptimizer."""

    def restore(self):
        """Loads the copy and drops the gradients, which belong to the step that failed."""
        super().restore()
        for group in self.value.param_groups:
            for parameter in group['params']:
                parameter.grad = None

    def sync(self):
        """Broadcasts them. ValueError for LBFGS."""
        broadcast_optimizer_state(self.value, root_rank=0)


class SamplerStateHandler(StateHandler):
    """Keeps the place of an ElasticSampler in its epoch."""

    def sync(self):
        """Goes to rank 0's place."""
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), root_rank=0))

    def reset(self):
        """Deals out the rest of the epoch among the ranks that there are now."""
        self.value.reset()


_handler_registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry():
    """The list of pairs (type, handler class); the first type that fits an object decides."""
    return _handler_registry


def set_handler_registry(registry):
    """Replaces the registry, for states that are made from now on."""
    global _handler_registry
    _handler_registry = registry


class TorchState(ObjectState):
    """The state of a training: model, optimizer, samplers and other objects.

    Every keyword argument becomes an attribute. Those whose type is in the registry are kept by
    their handler: setting such an attribute later replaces the object and saves the new one. The
    others are kept as in ObjectState. All ranks must use the same names.
    """

    def __init__(self, model=None, optimizer=None, **kwargs):
        kwargs.update(model=model, optimizer=optimizer)
        made = {name: _handler(value) for name, value in kwargs.items()}
        self._handlers = {name: handler for name, handler in made.items() if handler is not None}
        for name, handler in self._handlers.items():
            # Not through the handler, which has saved it.
            object.__setattr__(self, name, handler.value)
        super().__init__(broadcast_object, rueda.rank, **{
            name: value for name, value in kwargs.items() if name not in self._handlers})

    def __setattr__(self, name, value):
        handler = self.__dict__.get('_handlers', {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def save(self):
        """Copies everything into memory of this process."""
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self):
        """Goes back to what save() kept; a model keeps its tensors, only their values change."""
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self):
        """Gives all ranks the present state of rank 0, and saves it when all of it is there.

        Blocking. HorovodInternalError: it failed; restore() undoes what has changed.
        """
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self):
        """Deals the samplers out anew."""
        for handler in self._handlers.values():
            handler.reset()


def _handler(value):
    for kind, handler in get_handler_registry():
        if isinstance(value, kind):
            return handler(value)
    return None
