# SPDX-License-Identifier: Apache-2.0
"""Follows the gradients of one optimizer through backward and reduces them over all ranks.

Which bucket is reduced when is decided from the parameters alone, so all ranks do the same: every
bucket but the last to become ready starts as soon as its gradients are there; the last (and only,
for a small model) is reduced in synchronize(), by the calling thread, which is the fastest way.

Gradients are laid out in the first synchronize(), when it is known which of them are sparse; in
that step nothing starts early. One that is sparse only later is reduced as a dense one.

One thread at a time: hooks run in the thread that runs backward.
"""

import collections
import itertools

from rueda import _session
from rueda.exceptions import HorovodInternalError
from rueda.process_sets import members_of
from rueda.torch._tensors import check_sendable
from rueda.torch.agreement import agree
from rueda.torch.buckets import Bucket, Slot, plan
from rueda.torch.gradient_hooks import GradientHooks, count_pass
from rueda.torch.loose_bucket import LooseBucket
from rueda.torch.nan_guard import NanGuard
from rueda.torch.sparse_bucket import SparseBucket

# Numbers the optimizers of this process, by the ranks of their process set: those that have it must
# create its optimizers in one order, whatever others do.
_numbers = collections.defaultdict(itertools.count)


class GradientReducer:
    """The gradients of one optimizer.

    `slots` are in the order of the model, `groups` see plan(). Owned by the optimizer; the hooks
    on the parameters refer to it weakly and do nothing once it has gone.
    """

    def __init__(self, settings, passes):
        self.passes = passes
        self.paused = False  # True inside no_sync().
        self._settings = settings
        self._number = next(_numbers[settings.ranks])
        self._slots = {}
        self._groups = []
        self._buckets = self._guard = None
        self._in_buckets = frozenset()
        self._complete = 0  # Gradients that wait for synchronize().
        self._session = None
        self._hooks = GradientHooks(self)

    def add(self, named_parameters, groups=()):
        """Takes parameters in; `groups` lists lists of them. REQUIRES: no reduction is under way.

        ValueError for a parameter that cannot be sent.
        """
        self._release()
        for name, parameter in named_parameters:
            check_sendable(parameter)
            self._slots[parameter] = Slot(parameter, name, self.passes)
            self._hooks.watch(self._slots[parameter])
        self._groups += [[self._slots[parameter] for parameter in group] for group in groups]

    def set_passes(self, passes):
        """Sets the number of backward passes per step, from now on."""
        self.passes = passes
        self._begin_step()

    @property
    def under_way(self):
        """Whether a gradient is complete that synchronize() has not reduced yet."""
        return self._complete > 0

    @property
    def active(self):
        """Whether this process reduces gradients with others; else it trains alone."""
        return self._settings.active

    def outstanding(self):
        """The name of a parameter with a gradient that is not reduced yet, or None."""
        return next((slot.name for slot in self._slots.values()
                     if slot.passes_left < self.passes), None)

    def _begin_step(self):
        # Blocks only where a step was given up: what it has started must not be taken for a result
        # of the next one. The other ranks have started the same, whatever failed here.
        self._complete = 0
        for slot in self._slots.values():
            slot.passes_left = self.passes
        for bucket in self._buckets or ():
            bucket.due = len(bucket.slots)
        for bucket in self._buckets or ():
            if bucket.launched:
                try:
                    bucket.wait()
                except (HorovodInternalError, ValueError):
                    pass  # The step has failed already.

    def synchronize(self):
        """Reduces all gradients; a missing one counts as zeros, or as what `.grad` still holds.

        Blocks until all ranks have done the same. HorovodInternalError: a reduction failed;
        FloatingPointError: the NaN guard has found something. The gradients are then undefined, and
        the next step starts anew.
        """
        failure = None
        try:
            self._prepare()
            self._launch_rest()
            found = self._guard and self._guard.agree()
            # The last bucket first: the daemon works on the early ones meanwhile.
            for bucket in reversed(self._buckets):
                if found and not bucket.early:
                    continue
                try:
                    bucket.reduce()
                except HorovodInternalError as error:
                    failure = failure or error
        finally:
            self._begin_step()
        if failure is not None:
            raise failure
        if found:
            raise FloatingPointError(found)

    def _launch_rest(self):
        for bucket in self._buckets:
            if bucket.launched:
                continue
            for slot in bucket.slots:
                if slot.parameter.grad is not slot.view:
                    bucket.take(slot)
            if bucket.early:
                self._launch(bucket)
            elif self._guard:
                self._guard.look(bucket)

    def _launch(self, bucket):
        if self._guard:
            self._guard.look(bucket)
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
        if self.paused or not self.active:
            return
        count_pass(slot)
        if slot.passes_left == 0:
            self._complete += 1
        if session is self._session:
            self._take(slot)
        else:  # Nothing is laid out yet, but when the session ends the step ends, too.
            session.tenants.add(self)

    def _take(self, slot):
        bucket = slot.bucket
        if slot.parameter.grad is not slot.view and (slot.passes_left == 0 or not bucket.staged):
            bucket.take(slot)
        if slot.passes_left == 0:
            bucket.due -= 1
            if bucket.due == 0 and bucket.early:
                self._launch(bucket)

    def _prepare(self):
        # Lays the gradients out in memory of the session; again after shutdown() and init().
        session = _session.current()
        if self._session is session:
            return
        self._release()
        slots = list(self._slots.values())
        # Numbered by the session: when one ends by an error, not all ranks may have come this far.
        # For each set anew: outside of one, its optimizers do not come here.
        members = members_of(self._settings.process_set)
        name = session.name(f'gradients.{self._number}.plan', None, members.id)
        sparse = agree(name, self._number, slots, self._groups, self._settings)
        self._buckets = self._lay_out(slots, sparse)
        self._in_buckets = frozenset(slot.parameter for bucket in self._buckets
                                     if not bucket.staged for slot in bucket.slots)
        if self._settings.nan_guard:
            self._guard = NanGuard(f'gradients.{self._number}.guard', slots, self._settings)
        self._session = session
        session.tenants.add(self)

    def _lay_out(self, slots, sparse):
        apart = set(sparse)
        dense = [slot for slot in slots if slot not in apart]
        if self._settings.flat:
            groups = [[slot for slot in group if slot not in apart] for group in self._groups]
            ordered = plan(dense, [group for group in groups if group])
        else:
            ordered = [[slot] for slot in reversed(dense)]
        buckets = [self._make(index, part, early=index + 1 < len(ordered))
                   for index, part in enumerate(ordered)]
        if sparse:
            name = f'gradients.{self._number}.sparse.{_abridged(sparse[::-1])}'
            buckets.append(SparseBucket(name, sparse, self._settings))
        return buckets

    def _make(self, index, slots, early):
        # The names of the parameters are for people who read an error or a list of operations.
        name = f'gradients.{self._number}.{index}.{_abridged(slots)}'
        if self._settings.flat:
            return Bucket(name, slots, self._settings, early)
        return LooseBucket(name, slots[0], self._settings)

    def _release(self):
        for bucket in self._buckets or ():
            bucket.release()
        if self._session is not None:
            self._session.tenants.discard(self)
        self._buckets = self._guard = self._session = None

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
