# SPDX-License-Identifier: Apache-2.0
"""Operations on lists of PyTorch tensors that become ready together.

The same rules as in ops.py. Element k of n of a group called NAME is negotiated as
`grouped_allreduce.NAME_<k>of<n>`, so the lists must have one order on all ranks.
"""

import torch

from rueda import _session, check_process_set
from rueda.torch._tensors import as_memory, reduce_op, scales, wire_dtype
from rueda.torch.compression import Compression
from rueda.torch.ops import (allreduce_operation, run_allreduce, start_allgather, start_group,
                             synchronize)


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=None):
    """Reduces a list of tensors over all ranks into a list of new ones. Differentiable."""
    check_process_set(process_set)
    op = reduce_op(average, op)
    pairs = [compression.compress(tensor) for tensor in tensors]
    arguments = group_names('grouped_allreduce', name, len(pairs)), op, scales(
        prescale_factor, postscale_factor)
    inputs = [tensor for tensor, _ in pairs]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        reduced = _GroupedAllreduceFunction.apply(arguments, *inputs)
    else:
        reduced = _reduce(inputs, _empty_like(inputs), *arguments)
    return [compression.decompress(tensor, context)
            for tensor, (_, context) in zip(reduced, pairs)]


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                       postscale_factor=1.0, process_set=None):
    """Reduces a list of tensors in place; returns the list."""
    return synchronize(grouped_allreduce_async_(tensors, average, name, op, prescale_factor,
                                                postscale_factor, process_set))


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                            postscale_factor=1.0, process_set=None):
    """Starts a grouped reduction; synchronize() returns the list of new tensors."""
    check_process_set(process_set)
    names = group_names('grouped_allreduce', name, len(tensors))
    return _start(tensors, _empty_like(tensors), names, reduce_op(average, op),
                  scales(prescale_factor, postscale_factor))


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                             postscale_factor=1.0, process_set=None):
    """Starts a grouped reduction in place; synchronize() returns the list."""
    check_process_set(process_set)
    names = group_names('grouped_allreduce', name, len(tensors))
    return _start(tensors, tensors, names, reduce_op(average, op),
                  scales(prescale_factor, postscale_factor))


def grouped_allgather(tensors, name=None, process_set=None):
    """Concatenates each tensor of a list over all ranks along dim 0. Differentiable."""
    check_process_set(process_set)
    names = group_names('grouped_allgather', name, len(tensors))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return list(_GroupedAllgatherFunction.apply(names, *tensors))
    return [output for output, _ in _gather(tensors, names)]


def grouped_allgather_async(tensors, name=None, process_set=None):
    """Starts a grouped allgather; synchronize() returns the list of new tensors."""
    check_process_set(process_set)
    names = group_names('grouped_allgather', name, len(tensors))
    return start_allgather(list(tensors), names,
                           lambda gathered: [output for output, _ in gathered])


def group_names(prefix, name, count):
    """The names of the elements of a group, as a tuple. ValueError for an empty group."""
    if not count:
        raise ValueError('a group needs at least one tensor')
    base = _session.current().name(prefix, name)
    return tuple(f'{base}_{number}of{count}' for number in range(1, count + 1))


def _empty_like(tensors):
    for tensor in tensors:
        wire_dtype(tensor)
    return [torch.empty_like(tensor, requires_grad=False) for tensor in tensors]


def _start(sources, targets, names, op, scale_factors):
    operations = [allreduce_operation(source, target, op, scale_factors)
                  for source, target in zip(sources, targets)]
    return start_group(names, operations, (sources, targets), lambda natives: list(targets))


def _reduce(sources, targets, names, op, scale_factors):
    if len(sources) == 1:
        return [run_allreduce(sources[0], targets[0], names[0], op, scale_factors)]
    return synchronize(_start(sources, targets, names, op, scale_factors))


def _gather(tensors, names):
    return synchronize(start_allgather(list(tensors), names, lambda gathered: gathered))


class _GroupedAllreduceFunction(torch.autograd.Function):
    """Gradient: the same grouped reduction of the incoming gradients."""

    @staticmethod
    def forward(ctx, arguments, *tensors):
        names, op, scale_factors = arguments
        ctx.arguments = tuple(name + '.grad' for name in names), op, scale_factors
        return tuple(_reduce(tensors, _empty_like(tensors), *arguments))

    @staticmethod
    def backward(ctx, *gradients):
        gradients = [as_memory(gradient) for gradient in gradients]
        return (None, *_reduce(gradients, _empty_like(gradients), *ctx.arguments))


class _GroupedAllgatherFunction(torch.autograd.Function):
    """Gradient: the averages over ranks, of which each rank takes its own rows."""

    @staticmethod
    def forward(ctx, names, *tensors):
        gathered = _gather(tensors, names)
        rank = _session.current().rank
        ctx.names = tuple(name + '.grad' for name in names)
        ctx.rows = [(sum(rows[:rank]), rows[rank]) for _, rows in gathered]
        return tuple(output for output, _ in gathered)

    @staticmethod
    def backward(ctx, *gradients):
        gradients = [as_memory(gradient) for gradient in gradients]
        means = _reduce(gradients, _empty_like(gradients), ctx.names, reduce_op(None, None), None)
        return (None, *(mean.narrow(0, first, count)
                        for mean, (first, count) in zip(means, ctx.rows)))
