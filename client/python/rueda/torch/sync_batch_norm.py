# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation whose statistics cover the batches of all ranks.

A forward pass in training is one allgather of 2 * channels + 1 float64 per rank, a backward pass
one allreduce of 2 * channels: what travels does not grow with the batch. Sums within a rank are
taken in float32, or in the dtype of the input where that is wider; those over ranks in float64, so
the same statistics come out on all ranks, bit by bit.
"""

import torch
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

import rueda
from rueda.torch.ops import allgather, allreduce

_STATISTICS = 'sync_batch_norm.statistics'
_GRADIENTS = 'sync_batch_norm.gradients'


class SyncBatchNorm(_BatchNorm):
    """As torch.nn.BatchNorm1d, 2d and 3d, over the concatenated batches of all ranks.

    Input and output have the shape (batch, num_features, ...), any number of further dims, in host
    memory; `batch` may differ between ranks and be 0 on some. Takes the arguments of
    torch.nn.BatchNorm2d. Gradients of weight and bias are those of this rank's batch, for
    DistributedOptimizer to combine; the gradient of the input takes all ranks into account.

    In training all ranks must run forward, and backward if any does, of the same layers in one
    order and in one thread each. With one rank, and in eval mode, nothing is exchanged: a plain
    batch norm. Second derivatives are not offered.

    ValueError: an input with fewer than 2 dims or another number of channels, before init(), or,
    in training, when all ranks together give fewer than 2 values for a channel.
    HorovodInternalError: the exchange failed; the running statistics have not changed then.
    """

    def _check_input_dim(self, input):  # The name and signature are torch's.
        if input.dim() < 2:
            raise ValueError(f'expected an input with at least 2 dims, got {input.dim()}')
        if input.shape[1] != self.num_features:
            raise ValueError(f'expected an input with {self.num_features} channels in dim 1, got '
                             f'shape {tuple(input.shape)}')

    def forward(self, input):
        """Returns the normalised input. See the class."""
        if not self.training or rueda.size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        output, mean, variance, count = _SyncBatchNormFunction.apply(
            input, self.weight, self.bias, self.eps)
        if self.track_running_stats and self.running_mean is not None:
            self._track(mean, variance * (count / (count - 1)))
        return output

    @torch.no_grad()
    def _track(self, mean, variance):
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:  # The mean over all batches so far.
            share = 1.0 / float(self.num_batches_tracked)
        for running, new in ((self.running_mean, mean), (self.running_var, variance)):
            running.mul_(1.0 - share).add_(new.to(running.dtype), alpha=share)


class _SyncBatchNormFunction(torch.autograd.Function):
    """Returns (output, mean, biased variance, values per channel), the last three in float64."""

    @staticmethod
    def forward(ctx, values, weight, bias, eps):
        wide = _widened(values)
        mean, variance, count = _global_statistics(wide)
        output = functional.batch_norm(wide, mean.to(wide.dtype), variance.to(wide.dtype),
                                       _widened(weight), _widened(bias), False, 0.0, eps)
        ctx.save_for_backward(values, weight, mean, torch.rsqrt(variance + eps), count)
        ctx.mark_non_differentiable(mean, variance, count)
        return output.to(values.dtype), mean, variance, count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient, *ignored):
        values, weight, mean, inverse, count = ctx.saved_tensors
        gradient = _widened(gradient)
        centred = _widened(values) - _along_channels(mean, gradient)
        dims = _all_but_channels(values)
        # Over this rank: the sum of the gradient, and of it times the centred input.
        sums = torch.stack([gradient.sum(dims), (gradient * centred).sum(dims)]).double()
        needs_input, needs_weight, needs_bias, _ = ctx.needs_input_grad
        own = None
        if needs_input:
            total, projection = allreduce(sums, name=_GRADIENTS, op=rueda.Sum) / count
            scale = inverse if weight is None else inverse * weight
            own = gradient - _along_channels(total, gradient)
            own -= centred * _along_channels(projection * inverse * inverse, gradient)
            own = (own * _along_channels(scale, gradient)).to(values.dtype)
        return (own, (sums[1] * inverse).to(weight.dtype) if needs_weight else None,
                sums[0].to(weight.dtype) if needs_bias else None, None)


def _global_statistics(values):
    """Mean and biased variance of each channel and the number of its values, over all ranks.

    Combines the counts, means and squared distances of the ranks, not sums of squares: those lose
    all digits where the mean is large against the deviation. ValueError: fewer than 2 values.
    """
    dims, channels = _all_but_channels(values), values.shape[1]
    own_count = values.numel() // max(channels, 1)
    own = torch.zeros(1, 2 * channels + 1, dtype=torch.float64)
    own[0, -1] = own_count
    if own_count:
        mean = values.mean(dims)
        centred = values - _along_channels(mean, values)
        # What rounding has left between the mean and the true one.
        rest = centred.mean(dims).double()
        own[0, :channels] = mean.double() + rest
        own[0, channels:-1] = centred.square_().sum(dims).double() - own_count * rest.square()
    gathered = allgather(own, name=_STATISTICS)
    counts = gathered[:, -1:]
    count = counts.sum()
    if count < 2:
        raise ValueError('batch norm in training needs at least 2 values per channel; the batches '
                         f'of all {rueda.size()} ranks hold {int(count)}')
    means = gathered[:, :channels]
    mean = (means * counts).sum(0) / count
    distances = gathered[:, channels:-1] + counts * (means - mean).square()
    return mean, distances.sum(0) / count, count


def _widened(tensor):
    """In float32 at least; None stays None."""
    if tensor is None or tensor.dtype == torch.float64:
        return tensor
    return tensor.to(torch.float32)


def _all_but_channels(tensor):
    return [0, *range(2, tensor.dim())]


def _along_channels(vector, tensor):
    """A vector of one number per channel, so that it broadcasts against `tensor`."""
    return vector.to(tensor.dtype).view(1, -1, *[1] * (tensor.dim() - 2))
