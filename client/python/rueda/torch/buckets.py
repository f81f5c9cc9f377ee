# SPDX-License-Identifier: Apache-2.0
"""Buckets: gradients of one dtype laid out one after another in memory that all ranks reach.

A parameter's `.grad` is a view of its bucket, so backward accumulates in place and one operation
reduces the whole bucket without a copy. With compression to 16 bits the bucket holds copies and
`.grad` stays the user's own tensor. One thread at a time: the one that runs backward and step().
"""

import torch

from rueda import _session
from rueda.exceptions import HorovodInternalError
from rueda.torch.ops import start, synchronize

# One operation for a whole small model: each costs about 2 us, and nothing is left to overlap.
ONE_BUCKET_BYTES = 4 << 20
# Large models: early buckets are summed by the daemon while backward still computes others. 8 MiB
# are some milliseconds of memory traffic, far more than the cost of an operation.
BUCKET_BYTES = 8 << 20
# With zero_grad(set_to_none=True), larger gradients become None and are copied here once: two
# passes over memory. Zeroing and accumulating takes four, but no call from Python, which for small
# gradients costs more.
COPY_BYTES = 256 << 10
# Start of each gradient: a cache line, so that vector loads of neighbours do not share one.
_ALIGNMENT = 64


class Slot:
    """One parameter and its place in a bucket.

    `passes_left`: backward passes before it is due. `sparse`: reduced by a SparseBucket.
    """

    __slots__ = ('parameter', 'name', 'bucket', 'view', 'passes_left', 'sparse')

    def __init__(self, parameter, name, passes):
        self.parameter = parameter
        self.name = name
        self.bucket = None
        self.view = None
        self.passes_left = passes
        self.sparse = False


def plan(slots, groups):
    """Cuts slots into buckets: a list of lists of slots, in the order in which they become ready.

    `slots` are in the order of the model; backward runs through them from the end. `groups` are
    lists of slots that stay together; the rest is cut by size. Every list has one dtype. The
    result depends on the arguments only, so that it is the same on all ranks.
    """
    position = {id(slot): index for index, slot in enumerate(slots)}
    grouped = {id(slot) for group in groups for slot in group}
    rest = [slot for slot in slots if id(slot) not in grouped]
    total = sum(_bytes(slot) for slot in rest)
    limit = BUCKET_BYTES if total > ONE_BUCKET_BYTES else total
    buckets = []
    for group in groups:
        buckets += _cut(sorted(group, key=lambda slot: position[id(slot)]), None)
    buckets += _cut(rest, limit)
    # A bucket is ready with its last gradient, that of its foremost parameter.
    return sorted(buckets, key=lambda bucket: -min(position[id(slot)] for slot in bucket))


def _cut(slots, limit):
    filling, done = {}, []
    for slot in reversed(slots):
        bucket = filling.setdefault(slot.parameter.dtype, [])
        if bucket and limit is not None and sum(map(_bytes, bucket)) + _bytes(slot) > limit:
            done.append(bucket)
            bucket = filling[slot.parameter.dtype] = []
        bucket.append(slot)
    return done + list(filling.values())


def _bytes(slot):
    return slot.parameter.numel() * slot.parameter.element_size()


class Bucket:
    """The gradients of some parameters of one dtype, reduced by one operation.

    `early`: the daemon reduces it while backward goes on; else reduce() does so, in this thread.
    All ranks must make the same buckets. Where `settings` ask for another dtype, copies are sent.
    """

    def __init__(self, name, slots, settings, early):
        self.slots = slots
        self.early = early
        self.due = len(slots)  # Gradients that are still to come before the bucket can start.
        self._handle = None
        self._large = {slot for slot in slots if _bytes(slot) >= COPY_BYTES}
        self._name = _session.current().name('allreduce', name)
        first, sent = slots[0].parameter, settings.staged_dtype
        own = first.dtype
        self.staged = (sent not in (None, own) and own.is_floating_point
                       and first.element_size() > 1)
        self._lay_out(sent if self.staged else own)
        address = self._flat.data_ptr()
        self._operation = settings.kind(self._flat), address, address, self._flat.shape

    def _lay_out(self, dtype):
        element = torch.empty((), dtype=dtype).element_size()
        step = _ALIGNMENT // element
        starts, count = [], 0
        for slot in self.slots:
            starts.append(count)
            count += -(-slot.parameter.numel() // step) * step
        buffer = _session.current().arena.allocate(max(count, step) * element)
        self._flat = torch.frombuffer(buffer, dtype=dtype)
        for slot, first in zip(self.slots, starts):
            slot.bucket = self
            slot.view = self._view(slot.parameter, first)

    def _view(self, parameter, first):
        # Strides of the parameter where possible: the layout that torch wants gradients to have.
        # set_() and not narrow(): torch refuses some in-place calls on views.
        like = parameter if is_dense(parameter) else torch.empty(parameter.shape)
        flat = self._flat
        storage = flat.untyped_storage() if hasattr(flat, 'untyped_storage') else flat.storage()
        return torch.empty(0, dtype=flat.dtype).set_(storage, first, like.shape, like.stride())

    def take(self, slot):
        """Brings the gradient of `slot.parameter` into the bucket; zeros where there is none."""
        parameter, view = slot.parameter, slot.view
        gradient = parameter.grad
        if gradient is view:
            return
        if gradient is None:
            view.zero_()
        else:
            gradient = gradient.detach()
            view.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        if not self.staged:
            parameter.grad = view
        elif gradient is None:
            parameter.grad = torch.zeros_like(parameter)

    @property
    def sent(self):
        """All that is about to be sent, in few tensors."""
        return [self._flat]

    def pieces(self):
        """(slot, tensor) for all that is about to be sent."""
        return [(slot, slot.view) for slot in self.slots]

    def launch(self):
        """Starts the reduction of an early bucket. Does not wait for other ranks."""
        self._handle = start(self._name, self._operation, self._flat, None)

    @property
    def launched(self):
        """Whether launch() has been called, and wait() not since."""
        return self._handle is not None

    def wait(self):
        """Waits for what launch() has started. Blocking. REQUIRES: launched."""
        try:
            synchronize(self._handle)
        except (HorovodInternalError, ValueError):
            self._handle = None
            raise
        self._handle = None  # Not after an interrupt: the operation goes on.

    def reduce(self):
        """Waits for an early bucket, or reduces another one now. Blocking.

        Afterwards each `.grad` has the result. HorovodInternalError: the reduction failed.
        """
        if self.early:
            self.wait()
        else:
            _session.current().run(self._name, *self._operation)
        for slot in self.slots:
            if self.staged:
                slot.parameter.grad.detach().copy_(slot.view)
            elif slot.parameter.grad is not slot.view:
                slot.parameter.grad = slot.view

    def zero(self, set_to_none):
        """Clears the gradients; small ones stay in place. REQUIRES: not launched, not staged."""
        large = self._large if set_to_none else ()
        if large:
            for slot in self.slots:
                if slot in large:
                    slot.parameter.grad = None
                else:
                    slot.view.zero_()
        else:
            self._flat.zero_()
        for slot in self.slots:
            gradient = slot.parameter.grad
            if gradient is not None and gradient is not slot.view:
                slot.parameter.grad = slot.view

    def release(self):
        """Moves the gradients into ordinary memory, before the bucket's memory goes away."""
        for slot in self.slots:
            if slot.parameter.grad is slot.view:
                slot.parameter.grad = slot.view.clone()
            slot.bucket = slot.view = None


def is_dense(tensor):
    """Whether the tensor fills a block of memory without holes, in whatever order of dims."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True
