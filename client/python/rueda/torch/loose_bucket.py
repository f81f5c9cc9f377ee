# SPDX-License-Identifier: Apache-2.0
"""Gradients that a compressor of the user's makes into what is sent, each by itself.

One thread at a time: the one that runs backward and step().
"""

import torch

from rueda import _session
from rueda.exceptions import HorovodInternalError
from rueda.torch._tensors import as_memory
from rueda.torch.ops import start, synchronize


class LooseBucket:
    """One parameter with a compressor of the user's: what it makes is reduced on its own."""

    early = True
    staged = True

    def __init__(self, name, slot, settings):
        self.slots = [slot]
        self.due = 1
        self._name = _session.current().name('allreduce', name)
        self._settings = settings
        self._compression = settings.compression
        self._handle = self._context = None
        slot.bucket = self

    def take(self, slot):
        """Sees to it that there is a gradient; zeros where there is none."""
        gradient = slot.parameter.grad
        if gradient is None:
            slot.parameter.grad = torch.zeros_like(slot.parameter)
        elif gradient.is_sparse:
            slot.parameter.grad = gradient.to_dense()

    @property
    def sent(self):
        """What is about to be compressed."""
        return [self.slots[0].parameter.grad]

    def pieces(self):
        """(slot, tensor) for what is about to be compressed."""
        return [(self.slots[0], self.slots[0].parameter.grad)]

    def launch(self):
        """Compresses and starts the reduction. Does not wait for other ranks."""
        # A compressor may hand back the gradient itself, or a view of it.
        gradient = self.slots[0].parameter.grad.detach()
        sent, self._context = self._compression.compress(gradient)
        sent = as_memory(sent)
        address = sent.data_ptr()
        operation = self._settings.kind(sent), address, address, sent.shape
        self._handle = start(self._name, operation, sent, sent)

    @property
    def launched(self):
        """Whether launch() has been called, and wait() not since."""
        return self._handle is not None

    def wait(self):
        """Waits for what launch() has started; returns what was reduced. REQUIRES: launched."""
        try:
            reduced = synchronize(self._handle)
        except (HorovodInternalError, ValueError):
            self._handle = None
            raise
        self._handle = None  # Not after an interrupt: the operation goes on.
        return reduced

    def reduce(self):
        """Waits, and gives the decompressed result to `.grad`. Blocking."""
        reduced = self._compression.decompress(self.wait(), self._context)
        self.slots[0].parameter.grad.detach().copy_(reduced)

    def release(self):
        """Nothing to move: the gradient is the user's own tensor."""
        self.slots[0].bucket = None
