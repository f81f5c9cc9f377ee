# SPDX-License-Identifier: Apache-2.0
"""Operations on lists of PyTorch tensors that become ready together.

The same rules as in ops.py. Element k of n of a group called NAME is negotiated as
`grouped_allreduce.NAME_<k>of<n>`, so the lists must have one order on all ranks.
"""

import torch

from rueda import Average, _session
from rueda.process_sets import global_process_set, members_of
from rueda.torch._tensors import as_memory, scales, wire_dtype
from rueda.torch.compression import Compression
from rueda.torch.ops import (allreduce_operation, reduction, run_allreduce, start_allgather,
                             start_group, synchronize)


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None,
                      prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Reduces a list of tensors over all ranks into a list of new ones. Differentiable."""
    op = reduction(average, op, process_set)
    members = members_of(process_set)
    pairs = [compression.compress(tensor) for tensor in tensors]
    arguments = (group_names('grouped_allreduce', name, len(pairs), members), op,
                 scales(prescale_factor, postscale_factor), members)
    inputs = [tensor for tensor, _ in pairs]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        reduced = _GroupedAllreduceFunction.apply(arguments, *inputs)
    else:
        reduced = _reduce(inputs, _empty_like(inputs), *arguments)
    return [compression.decompress(tensor, context)
            for tensor, (_, context) in zip(reduced, pairs)]


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                       postscale_factor=1.0, process_set=global_process_set):
    """Reduces a list of tensors in place; returns the list."""
    op = reduction(average, op, process_set)
    return synchronize(grouped_allreduce_async_(tensors, None, name, op, prescale_factor,
                                                postscale_factor, process_set))


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                            postscale_factor=1.0, process_set=global_process_set, priority=0):
    """Starts a grouped reduction; synchronize() returns the list of new tensors.

    `priority` as in allreduce_async().
    """
    return _start_allreduces(tensors, _empty_like(tensors), name,
                             reduction(average, op, process_set),
                             scales(prescale_factor, postscale_factor), process_set, priority)


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0,
                             postscale_factor=1.0, process_set=global_process_set, priority=0):
    """Starts a grouped reduction in place; synchronize() returns the list.

    `priority` as in allreduce_async().
    """
    return _start_allreduces(tensors, tensors, name, reduction(average, op, process_set),
                             scales(prescale_factor, postscale_factor), process_set, priority)


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """Concatenates each tensor of a list over all ranks along dim 0. Differentiable."""
    members = members_of(process_set)
    names = group_names('grouped_allgather', name, len(tensors), members)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return list(_GroupedAllgatherFunction.apply(names, members, *tensors))
    return [output for output, _ in _gather(tensors, names, members)]


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """Starts a grouped allgather; synchronize() returns the list of new tensors."""
    members = members_of(process_set)
    names = group_names('grouped_allgather', name, len(tensors), members)
    return start_allgather(list(tensors), names,
                           lambda gathered: [output for output, _ in gathered], members)


def group_names(prefix, name, count, members):
    """The names of the elements of a group, as a tuple. ValueError for an empty group."""
    if not count:
        raise ValueError('a group needs at least one tensor')
    base = _session.current().name(prefix, name, members.id)
    return tuple(f'{base}_{number}of{count}' for number in range(1, count + 1))


def _empty_like(tensors):
    for tensor in tensors:
        wire_dtype(tensor)
    return [torch.empty_like(tensor, requires_grad=False) for tensor in tensors]


def _start_allreduces(sources, targets, name, op, scale_factors, process_set, priority):
    members = members_of(process_set)
    names = group_names('grouped_allreduce', name, len(sources), members)
    return _start(sources, targets, names, op, scale_factors, members, priority)


def _start(sources, targets, names, op, scale_factors, members, priority=0):
    operations = [allreduce_operation(source, target, op, scale_factors, members, priority)
                  for source, target in zip(sources, targets)]
    return start_group(names, operations, (sources, targets), lambda natives: list(targets))


def _reduce(sources, targets, names, op, scale_factors, members):
    if len(sources) == 1:
        return [run_allreduce(sources[0], targets[0], names[0], op, scale_factors, members)]
    return synchronize(_start(sources, targets, names, op, scale_factors, members))


def _gather(tensors, names, members):
    return synchronize(start_allgather(list(tensors), names, lambda gathered: gathered, members))


class _GroupedAllreduceFunction(torch.autograd.Function):
    """Gradient: the same grouped reduction of the incoming gradients."""

    @staticmethod
    def forward(ctx, arguments, *tensors):
        names, *rest = arguments
        ctx.arguments = tuple(name + '.grad' for name in names), *rest
        return tuple(_reduce(tensors, _empty_like(tensors), *arguments))

    @staticmethod
    def backward(ctx, *gradients):
        gradients = [as_memory(gradient) for gradient in gradients]
        return (None, *_reduce(gradients, _empty_like(gradients), *ctx.arguments))


class _GroupedAllgatherFunction(torch.autograd.Function):
    """Gradient: the averages over ranks, of which each rank takes its own rows."""

    @staticmethod
    def forward(ctx, names, members, *tensors):
        gathered = _gather(tensors, names, members)
        ctx.names, ctx.members = tuple(name + '.grad' for name in names), members
        ctx.rows = [(sum(rows[:members.rank]), rows[members.rank]) for _, rows in gathered]
        return tuple(output for output, _ in gathered)

    @staticmethod
    def backward(ctx, *gradients):
        gradients = [as_memory(gradient) for gradient in gradients]
        means = _reduce(gradients, _empty_like(gradients), ctx.names, Average, None, ctx.members)
        return (None, None, *(mean.narrow(0, first, count)
                              for mean, (first, count) in zip(means, ctx.rows)))
