# SPDX-License-Identifier: Apache-2.0
"""Operations that deal out rows (dim 0) of PyTorch tensors to the ranks. Rules as in ops.py."""

import torch

from rueda import Average, Sum, _native, _session
from rueda.process_sets import global_process_set, members_of
from rueda.torch._tensors import as_memory, reduce_op, scales, wire_dtype
from rueda.torch.compression import Compression
from rueda.torch.grouped import group_names
from rueda.torch.ops import (in_set, run_gather, start_allgather, start_gathers, start_group,
                             synchronize)


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends rows of `tensor` to every rank, in rank order. Differentiable.

    `splits`, a list or a 1-d integer tensor, says how many rows each rank gets; what it leaves over
    goes to nobody. None: as many for each, so dim 0 must be a multiple of their number. Other dims
    must be equal on all ranks.

    Returns the rows that this rank got, in rank order; with `splits` a pair of them and an int32
    tensor of how many came from each rank.
    """
    parts = _splits(splits)
    members = members_of(process_set)
    name = _session.current().name('alltoall', name, members.id)
    if tensor.requires_grad and torch.is_grad_enabled():
        output, received = _AlltoallFunction.apply(tensor, parts, name, members)
    else:
        output, received = _exchange(tensor, parts, name, members)
    return output if splits is None else (output, received)


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """Starts an alltoall; synchronize() returns the pair (rows, received splits) in any case."""
    members = members_of(process_set)
    name = _session.current().name('alltoall', name, members.id)
    return _start_alltoall([tensor], (name,), [_splits(splits)], lambda pairs: pairs[0], members)


def grouped_alltoall(tensors, splits=None, name=None, process_set=global_process_set):
    """alltoall() of each tensor of a list; `splits` is None or lists those of each tensor.

    Returns a list of what alltoall() returns.
    """
    pairs = synchronize(grouped_alltoall_async(tensors, splits, name, process_set))
    return [output for output, _ in pairs] if splits is None else pairs


def grouped_alltoall_async(tensors, splits=None, name=None, process_set=global_process_set):
    """Starts a grouped alltoall; synchronize() returns a list of pairs (rows, received splits)."""
    members = members_of(process_set)
    names = group_names('grouped_alltoall', name, len(tensors), members)
    if splits is not None and len(splits) != len(tensors):
        raise ValueError(f'{len(splits)} lists of splits for {len(tensors)} tensors')
    parts = [None] * len(tensors) if splits is None else [_splits(one) for one in splits]
    return _start_alltoall(list(tensors), names, parts, lambda pairs: pairs, members)


def reducescatter(tensor, name=None, compression=Compression.none, op=Average,
                  process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
    """Reduces over all ranks; each rank gets its share of the rows. Differentiable.

    `op` is any but Adasum. Rows are dealt out in rank order; the first dim0 % size() ranks get one
    more than the others, and some get none if there are fewer rows than ranks.
    """
    members = members_of(process_set)
    compressed, context = compression.compress(tensor)
    arguments = (_session.current().name('reducescatter', name, members.id), reduce_op(None, op),
                 scales(prescale_factor, postscale_factor), members)
    if compressed.requires_grad and torch.is_grad_enabled():
        reduced = _ReducescatterFunction.apply(compressed, *arguments)
    else:
        reduced = _run_reducescatter(compressed, *arguments)
    return compression.decompress(reduced, context)


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set,
                        prescale_factor=1.0, postscale_factor=1.0):
    """Starts a reducescatter; synchronize() returns this rank's rows."""
    members = members_of(process_set)
    name = _session.current().name('reducescatter', name, members.id)
    return _start_reducescatter([tensor], (name,), reduce_op(None, op),
                                scales(prescale_factor, postscale_factor), members,
                                lambda parts: parts[0])


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average,
                          process_set=global_process_set, prescale_factor=1.0,
                          postscale_factor=1.0):
    """reducescatter() of each tensor of a list into a list. Differentiable."""
    members = members_of(process_set)
    pairs = [compression.compress(tensor) for tensor in tensors]
    inputs = [tensor for tensor, _ in pairs]
    arguments = (group_names('grouped_reducescatter', name, len(inputs), members),
                 reduce_op(None, op), scales(prescale_factor, postscale_factor), members)
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        reduced = _GroupedReducescatterFunction.apply(arguments, *inputs)
    else:
        reduced = synchronize(_start_reducescatter(inputs, *arguments, list))
    return [compression.decompress(tensor, context)
            for tensor, (_, context) in zip(reduced, pairs)]


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set,
                                prescale_factor=1.0, postscale_factor=1.0):
    """Starts a grouped reducescatter; synchronize() returns the list of this rank's rows."""
    members = members_of(process_set)
    names = group_names('grouped_reducescatter', name, len(tensors), members)
    return _start_reducescatter(list(tensors), names, reduce_op(None, op),
                                scales(prescale_factor, postscale_factor), members, list)


def _splits(splits):
    """Splits as a tuple of integers, or None."""
    if splits is None:
        return None
    if isinstance(splits, torch.Tensor):
        if splits.dim() != 1 or splits.dtype not in (torch.int32, torch.int64):
            raise ValueError('splits must be a 1-d tensor of int32, not of '
                             f'{splits.dtype} with shape {tuple(splits.shape)}')
        return tuple(splits.tolist())
    if not all(isinstance(split, int) for split in splits):
        raise ValueError(f'splits must be integers, not {splits!r}')
    return tuple(splits)


def _start_alltoall(tensors, names, splits, result, members):
    def finish(gathered):
        return result([(output, torch.tensor(rows, dtype=torch.int32))
                       for output, rows in gathered])

    return start_gathers(_native.ALLTOALL, tensors, names, splits, finish, members)


def _exchange(tensor, splits, name, members):
    output, rows = run_gather(_native.ALLTOALL, tensor, name, members, splits)
    return output, torch.tensor(rows, dtype=torch.int32)


def _own_rows(tensor, members):
    """Uninitialised room for this rank's share of the rows of `tensor`."""
    if tensor.dim() == 0:
        return tensor.new_empty(())  # The library refuses the operation and says why.
    rows, more = divmod(tensor.shape[0], members.size)
    return torch.empty((rows + (members.rank < more), *tensor.shape[1:]), dtype=tensor.dtype)


def _reducescatter_operation(tensor, target, op, scale_factors, members):
    kind = in_set((_native.REDUCESCATTER, wire_dtype(tensor), op, 0, scale_factors), members)
    return kind, tensor.data_ptr(), target.data_ptr(), tensor.shape


def _start_reducescatter(tensors, names, op, scale_factors, members, result):
    targets = [_own_rows(tensor, members) for tensor in tensors]
    operations = [_reducescatter_operation(tensor, target, op, scale_factors, members)
                  for tensor, target in zip(tensors, targets)]
    return start_group(names, operations, (tensors, targets), lambda natives: result(targets))


def _run_reducescatter(tensor, name, op, scale_factors, members):
    target = _own_rows(tensor, members)
    _session.current().run(name, *_reducescatter_operation(tensor, target, op, scale_factors,
                                                           members))
    return target


def _scaled_gradient(gradient, op, scale_factors, members):
    """What a reducescatter's gradient is gathered from, by Horovod's rule."""
    factor = members.size if op == Sum else 1
    for scale in scale_factors or ():
        factor *= scale
    gradient = as_memory(gradient)
    return gradient if factor == 1 else gradient * factor


class _AlltoallFunction(torch.autograd.Function):
    """Gradient: every row goes back to where it came from; rows that went nowhere get zeros."""

    @staticmethod
    def forward(ctx, tensor, splits, name, members):
        output, received = _exchange(tensor, splits, name, members)
        ctx.name, ctx.received, ctx.rows = name + '.grad', tuple(received.tolist()), tensor.shape[0]
        ctx.members = members
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx, gradient, _):
        returned, _ = _exchange(as_memory(gradient), ctx.received, ctx.name, ctx.members)
        missing = ctx.rows - returned.shape[0]
        if missing:
            returned = torch.cat((returned, returned.new_zeros(missing, *returned.shape[1:])))
        return returned, None, None, None


class _ReducescatterFunction(torch.autograd.Function):
    """Gradient: that of the rows of all ranks, times their number after a sum, and the scales."""

    @staticmethod
    def forward(ctx, tensor, name, *arguments):
        ctx.name, ctx.arguments = name + '.grad', arguments
        return _run_reducescatter(tensor, name, *arguments)

    @staticmethod
    def backward(ctx, gradient):
        own = _scaled_gradient(gradient, *ctx.arguments)
        output, _ = run_gather(_native.ALLGATHER, own, ctx.name, ctx.arguments[-1])
        return output, None, *[None] * len(ctx.arguments)


class _GroupedReducescatterFunction(torch.autograd.Function):
    """As _ReducescatterFunction, of a group."""

    @staticmethod
    def forward(ctx, arguments, *tensors):
        names, *ctx.arguments = arguments
        ctx.names = tuple(name + '.grad' for name in names)
        return tuple(synchronize(_start_reducescatter(list(tensors), *arguments, list)))

    @staticmethod
    def backward(ctx, *gradients):
        own = [_scaled_gradient(gradient, *ctx.arguments) for gradient in gradients]
        gathered = synchronize(start_allgather(own, ctx.names, list, ctx.arguments[-1]))
        return (None, *(output for output, _ in gathered))
