# SPDX-License-Identifier: Apache-2.0
"""The optimizer for op=Adasum: combines what a local step does, not the gradients.

Each rank takes the step of the user's optimizer with its own gradients. How far each parameter has
moved is reduced over all ranks, tensor by tensor, and added to where the parameter was. One thread
at a time.
"""

import torch

import rueda
from rueda import _session
from rueda.torch._tensors import as_memory, check_sendable
from rueda.torch.buckets import Slot
from rueda.torch.gradient_hooks import GradientHooks, count_pass
from rueda.torch.nan_guard import NanGuard
from rueda.torch.ops import start_group, synchronize
from rueda.torch.wrapped import Wrapped, wrapped


def wrap(optimizer, names, settings, passes):
    """The distributed optimizer around `optimizer`; `names` by parameter.

    NotImplementedError for a process set that is not the global one.
    """
    if settings.process_set is not rueda.global_process_set:
        raise NotImplementedError('op=Adasum works on the global process set only')
    return wrapped(_Adasum, optimizer, names, Deltas(names, settings, passes))


class Deltas:
    """How far a local step moves each parameter, on its way to all ranks."""

    def __init__(self, names, settings, passes):
        self.passes = passes
        self.paused = False
        self._settings = settings
        self._hooks = GradientHooks(self)
        self.slots = []
        self._starts = []
        self._moves = None
        self.add((name, parameter) for parameter, name in names.items() if parameter.requires_grad)

    def add(self, named_parameters):
        """Takes parameters in. ValueError for one that cannot be sent."""
        for name, parameter in named_parameters:
            check_sendable(parameter)
            self.slots.append(Slot(parameter, name, self.passes))
            self._hooks.watch(self.slots[-1])

    def set_passes(self, passes):
        """Sets the number of backward passes per step, from now on."""
        self.passes = passes
        self.begin_step()

    @property
    def active(self):
        """Whether this process combines its steps with others; else it trains alone."""
        return self._settings.active

    def on_gradient(self, slot):
        """Called after each accumulation into the gradient of `slot`."""
        if not self.paused and self.active:
            _session.current().tenants.add(self)
            count_pass(slot)

    def outstanding(self):
        """The name of a parameter with a gradient that no step has used yet, or None."""
        return next((slot.name for slot in self.slots if slot.passes_left < self.passes), None)

    @property
    def under_way(self):
        """Whether a gradient is complete that no step has used yet."""
        return any(slot.passes_left == 0 for slot in self.slots)

    def begin_step(self):
        """Counts backward passes anew."""
        for slot in self.slots:
            slot.passes_left = self.passes

    def release_memory(self):
        """Called before the session ends: a step that is under way is given up."""
        self.begin_step()

    @torch.no_grad()
    def remember(self):
        """Keeps where the parameters are before the local step."""
        self._starts = [slot.parameter.detach().clone() for slot in self.slots]

    @torch.no_grad()
    def combine(self):
        """Moves each parameter by the reduced deltas. Blocking; on all ranks.

        After an error the parameters are where they were before the local step.
        """
        starts, self._starts = self._starts, []
        self._moves = [slot.parameter.detach() - start for slot, start in zip(self.slots, starts)]
        try:
            self._check()
            moves = self._reduce(self._moves)
        except BaseException:
            moves = [torch.zeros_like(start) for start in starts]
            raise
        finally:
            self._moves = None
            for slot, start, move in zip(self.slots, starts, moves):
                slot.parameter.copy_(start.add_(move))

    def _check(self):
        if self._settings.nan_guard:
            guard = NanGuard('adasum.guard', self.slots, self._settings)
            guard.look(self)
            found = guard.agree()
            if found:
                raise FloatingPointError(found)

    @property
    def sent(self):
        """All that is about to be sent."""
        return self._moves

    def pieces(self):
        """(slot, tensor) for all that is about to be sent."""
        return list(zip(self.slots, self._moves))

    def _reduce(self, tensors):
        """The tensors reduced over all ranks, each by an operation of its own."""
        compression, session = self._settings.compression, _session.current()
        pairs = [compression.compress(tensor) for tensor in tensors]
        sent = [as_memory(tensor) for tensor, _ in pairs]
        names = tuple(session.name('allreduce', f'adasum.delta.{slot.name}') for slot in self.slots)
        operations = [(self._settings.kind(tensor), tensor.data_ptr(), tensor.data_ptr(),
                       tensor.shape) for tensor in sent]
        synchronize(start_group(names, operations, sent, lambda natives: None))
        return [compression.decompress(tensor, context)
                for tensor, (_, context) in zip(sent, pairs)]


class _Adasum(Wrapped):
    """Combines steps in front of the user's optimizer class."""

    def step(self, closure=None):
        """Takes the local step and combines what it did over all ranks. Blocking.

        With a closure, its last evaluation counts.
        """
        deltas = self._reducer
        if not deltas.active:
            return super().step() if closure is None else super().step(closure)
        deltas.remember()
        try:
            loss = super().step() if closure is None else super().step(closure)
        finally:
            deltas.begin_step()
        deltas.combine()
        return loss

    step.hooked = True  # The user's class is wrapped by torch already; see optimizer.py.

    def synchronize(self):
        """Does nothing: step() reduces."""

    def skip_synchronize(self):
        """AssertionError: a step cannot be taken without the reduction."""
        raise AssertionError('skip_synchronize() is not supported with op=Adasum')
