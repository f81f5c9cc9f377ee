# SPDX-License-Identifier: Apache-2.0
"""Tensors in memory that the other ranks of the job and the daemon reach without a copy."""

import torch

from rueda import _session


def shared_zeros(*size, dtype=None):
    """A contiguous tensor of zeros, as torch.zeros, in memory that the ranks of a host share.

    Collectives on it in place copy nothing; on other tensors large sums take about twice as long,
    asynchronous ones up to four times. Only where its memory lies differs: ranks see each other's
    values in collectives alone. DistributedOptimizer puts gradients into such memory by itself.

    The memory is given back when the last tensor that uses it has gone; a tensor that outlives
    shutdown() keeps its values, in ordinary memory. Any thread; takes some milliseconds for 100 MB.
    Raises NotInitializedError; ResourceExhaustedError where the host or the user's quota is full.
    """
    # Says what is wrong with `size`; without one the tensor is a scalar.
    like = torch.empty(*(size or ((),)), dtype=dtype, device='meta')
    size, dtype, count = like.shape, like.dtype, like.numel()
    element = torch.empty((), dtype=dtype).element_size()
    buffer = _session.current().arena.allocate(max(count, 1) * element)
    return torch.frombuffer(buffer, dtype=dtype, count=max(count, 1))[:count].view(size)
