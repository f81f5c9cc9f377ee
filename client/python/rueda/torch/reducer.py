# SPDX-License-Identifier: Apache-2.0
"""Follows the gradients of one optimizer through backward and reduces them over all ranks.

Which bucket is reduced when is decided from the parameters alone, so all ranks do the same: every
bucket but the last to become ready starts as soon as its gradients are there; the last (and only,
for a small model) is reduced in synchronize(), by the calling thread, which is the fastest way.

One thread at a time: hooks run in the thread that runs backward.
"""

import hashlib
import itertools
import weakref

import torch

from rueda import _session
from rueda.exceptions import HorovodInternalError, MismatchError
from rueda.torch._tensors import check_sendable
from rueda.torch.buckets import Bucket, LooseBucket, Slot, plan
from rueda.torch.compression import Compression
from rueda.torch.objects import allgather_object

_TOO_MANY_PASSES = (
    'Gradients were computed more than backward_passes_per_step times before call to step(). '
    'Increase backward_passes_per_step to accumulate gradients locally. (rueda: parameter {}.)')

# Numbers the optimizers of this process. Ranks must create them in one order.
_numbers = itertools.count()


class Settings:
    """What a reducer is told once. `scales`: None or (prescale, postscale)."""

    def __init__(self, op, scales, compression, sparse_as_dense):
        self.op = op
        self.scales = scales
        self.compression = compression
        self.sparse_as_dense = sparse_as_dense


class GradientReducer:
    """The gradients of one optimizer.

    `slots` are in the order of the model, `groups` see plan(). Owned by the optimizer; the hooks
    on the parameters refer to it weakly and do nothing once it has gone.
    """

    def __init__(self, settings, passes):
        self.passes = passes
        self.paused = False  # True inside no_sync().
        self._settings = settings
        # A compressor of the user's may send anything, so each gradient goes on its own.
        self._flat = settings.compression in (Compression.none, Compression.fp16)
        self._number = next(_numbers)
        self._slots = {}
        self._groups = []
        self._buckets = None
        self._in_buckets = frozenset()
        self._complete = 0  # Gradients that wait for synchronize().
        self._session = None
        self._hooks = []
        weakref.finalize(self, _remove, self._hooks).atexit = False

    def add(self, named_parameters, groups=()):
        """Takes parameters in; `groups` lists lists of them. REQUIRES: no reduction is under way.

        ValueError for a parameter that cannot be sent.
        """
        self._release()
        for name, parameter in named_parameters:
            check_sendable(parameter)
            self._slots[parameter] = Slot(parameter, name, self.passes)
            self._hooks.append(_hook(self._slots[parameter], weakref.ref(self)))
        self._groups += [[self._slots[parameter] for parameter in group] for group in groups]

    def set_passes(self, passes):
        """Sets the number of backward passes per step, from now on."""
        self.passes = passes
        self._begin_step()

    @property
    def under_way(self):
        """Whether a gradient is complete that synchronize() has not reduced yet."""
        return self._complete > 0

    def _begin_step(self):
        self._complete = 0
        for slot in self._slots.values():
            slot.passes_left = self.passes
        for bucket in self._buckets or ():
            bucket.due = len(bucket.slots)

    def synchronize(self):
        """Reduces all gradients; a missing one counts as zeros, or as what `.grad` still holds.

        Blocks until all ranks have done the same. HorovodInternalError: a reduction failed; the
        gradients are then undefined, and the next step starts anew.
        """
        self._prepare()
        failure = None
        try:
            self._launch_rest()
            # The last bucket first: the daemon works on the early ones meanwhile.
            for bucket in reversed(self._buckets):
                try:
                    bucket.reduce()
                except HorovodInternalError as error:
                    failure = failure or error
        finally:
            self._begin_step()
        if failure is not None:
            raise failure

    def _launch_rest(self):
        for bucket in self._buckets:
            if not bucket.launched:
                for slot in bucket.slots:
                    if slot.parameter.grad is not slot.view:
                        self._densify(slot)
                        bucket.take(slot)
                if bucket.early:
                    bucket.launch()

    def zero(self, set_to_none):
        """Clears the gradients that lie in buckets; returns their parameters as a set.

        Small ones become zeros where they are, large ones become None with `set_to_none`.
        REQUIRES: not under_way.
        """
        if self._session is None or self._session is not _session.current_or_none():
            return frozenset()
        for bucket in self._buckets:
            if not bucket.staged:
                bucket.zero(set_to_none)
        return self._in_buckets

    def on_gradient(self, slot):
        """Called after each accumulation into the gradient of `slot`, during backward."""
        session = _session.current()
        if self.paused or session.size == 1:
            return
        if session is not self._session:
            self._prepare()
        if slot.passes_left <= 0:
            raise AssertionError(_TOO_MANY_PASSES.format(slot.name))
        slot.passes_left -= 1
        bucket = slot.bucket
        if slot.parameter.grad is not slot.view and (slot.passes_left == 0 or not bucket.staged):
            self._densify(slot)
            bucket.take(slot)
        if slot.passes_left == 0:
            self._complete += 1
            bucket.due -= 1
            if bucket.due == 0 and bucket.early:
                bucket.launch()

    def _densify(self, slot):
        gradient = slot.parameter.grad
        if gradient is None or not gradient.is_sparse:
            return
        if not self._settings.sparse_as_dense:
            raise ValueError(f'the gradient of {slot.name} is sparse; pass sparse_as_dense=True to '
                             'DistributedOptimizer to reduce it as a dense tensor')
        slot.parameter.grad = gradient.to_dense()

    def _prepare(self):
        # Lays the gradients out in memory of the session; again after shutdown() and init().
        session = _session.current()
        if self._session is session:
            return
        self._release()
        self._agree()
        slots = list(self._slots.values())
        if self._flat:
            ordered = plan(slots, self._groups)
        else:
            ordered = [[slot] for slot in reversed(slots)]
        self._buckets = [self._make(index, slots, early=index + 1 < len(ordered))
                         for index, slots in enumerate(ordered)]
        self._in_buckets = frozenset(slot.parameter for bucket in self._buckets
                                     if not bucket.staged for slot in bucket.slots)
        self._session = session
        session.tenants.add(self)

    def _make(self, index, slots, early):
        settings = self._settings
        # The names of the parameters are for people who read an error or a list of operations.
        name = f'gradients.{self._number}.{index}.{_abridged(slots)}'
        if not self._flat:
            return LooseBucket(name, slots[0], settings.op, settings.scales, settings.compression)
        half = settings.compression is Compression.fp16
        return Bucket(name, slots, settings.op, settings.scales, early,
                      torch.float16 if half else None)

    def _agree(self):
        # Buckets are matched by name and size only: ranks with other models would add apples to
        # oranges. Once per plan, so its price (about 0.1 ms) does not matter.
        lines = [f'{slot.name} {slot.parameter.dtype} {tuple(slot.parameter.shape)} '
                 f'strides {slot.parameter.stride()}' for slot in self._slots.values()]
        lines.append(f'{len(self._groups)} groups of parameters: '
                     + str([[slot.name for slot in group] for group in self._groups]))
        # Numbered by the session: when one ends by an error, not all ranks may have come this far.
        name = _session.current().name(f'gradients.{self._number}.plan', None)
        digests = allgather_object(hashlib.sha256('\n'.join(lines).encode()).digest(), name)
        if len(set(digests)) > 1:
            raise MismatchError(_difference(self._number, allgather_object(lines, name + '.text')))

    def _release(self):
        for bucket in self._buckets or ():
            bucket.release()
        if self._session is not None:
            self._session.tenants.discard(self)
        self._buckets = self._session = None

    def release_memory(self):
        """Called before the session ends: its memory goes away, the gradients must not.

        A step that is under way is given up: the next session begins a new one.
        """
        self._release()
        self._begin_step()


def _abridged(slots):
    first, last = slots[-1].name, slots[0].name
    text = first if first == last else f'{first}..{last}'
    return text if len(text) <= 400 else text[:200] + '..' + text[-198:]


def _difference(number, descriptions):
    for rank, lines in enumerate(descriptions):
        for one, other in itertools.zip_longest(descriptions[0], lines, fillvalue='nothing more'):
            if one != other:
                return (f'ranks disagree on the parameters of optimizer {number}: rank 0 has '
                        f'{one}; rank {rank} has {other}')
    return f'ranks disagree on the parameters of optimizer {number}'


def _remove(hooks):
    for handle, _ in hooks:
        handle.remove()


def _hook(slot, reducer):
    """Calls `reducer().on_gradient(slot)` after each accumulation, while the reducer lives.

    Returns (removable handle, object to keep alive with it).
    """
    def on_accumulated(*ignored):
        target = reducer()
        if target is not None:
            target.on_gradient(slot)

    parameter = slot.parameter
    if hasattr(parameter, 'register_post_accumulate_grad_hook'):  # torch >= 2.1
        return parameter.register_post_accumulate_grad_hook(on_accumulated), None
    accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    return accumulator.register_hook(on_accumulated), accumulator
