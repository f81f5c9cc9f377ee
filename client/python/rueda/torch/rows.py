# SPDX-License-Identifier: Apache-2.0
"""Operations that deal out rows (dim 0) of PyTorch tensors to the ranks. Rules as in ops.py."""

import torch

from rueda import Average, Sum, _native, _session, check_process_set
from rueda.torch._tensors import as_memory, reduce_op, scales, wire_dtype
from rueda.torch.compression import Compression
from rueda.torch.grouped import group_names
from rueda.torch.ops import (run_gather, start_allgather, start_gathers, start_group,
                             synchronize)


def alltoall(tensor, splits=None, name=None, process_set=None):
    """Sends rows of `tensor` to every rank, in rank order. Differentiable.

    `splits`, a list or a 1-d integer tensor, says how many rows each rank gets; what it leaves over
    goes to nobody. None: as many for each, so dim 0 must be a multiple of size(). The other dims
    must be equal on all ranks.

    Returns the rows that this rank got, in rank order; with `splits` a pair of them and an int32
    tensor of how many came from each rank.
    """
    check_process_set(process_set)
    parts = _splits(splits)
    name = _session.current().name('alltoall', name)
    if tensor.requires_grad and torch.is_grad_enabled():
        output, received = _AlltoallFunction.apply(tensor, parts, name)
    else:
        output, received = _exchange(tensor, parts, name)
    return output if splits is None else (output, received)


def alltoall_async(tensor, splits=None, name=None, process_set=None):
    """Starts an alltoall; synchronize() returns the pair (rows, received splits) in any case."""
    check_process_set(process_set)
    name = _session.current().name('alltoall', name)
    return _start_alltoall([tensor], (name,), [_splits(splits)], lambda pairs: pairs[0])


def grouped_alltoall(tensors, splits=None, name=None, process_set=None):
    """alltoall() of each tensor of a list; `splits` is None or lists those of each tensor.

    Returns a list of what alltoall() returns.
    """
    pairs = synchronize(grouped_alltoall_async(tensors, splits, name, process_set))
    return [output for output, _ in pairs] if splits is None else pairs


def grouped_alltoall_async(tensors, splits=None, name=None, process_set=None):
    """Starts a grouped alltoall; synchronize() returns a list of pairs (rows, received splits)."""
    check_process_set(process_set)
    names = group_names('grouped_alltoall', name, len(tensors))
    if splits is not None and len(splits) != len(tensors):
        raise ValueError(f'{len(splits)} lists of splits for {len(tensors)} tensors')
    parts = [None] * len(tensors) if splits is None else [_splits(one) for one in splits]
    return _start_alltoall(list(tensors), names, parts, lambda pairs: pairs)


def reducescatter(tensor, name=None, compression=Compression.none, op=Average, process_set=None,
                  prescale_factor=1.0, postscale_factor=1.0):
    """Reduces over all ranks; each rank gets its share of the rows. Differentiable.

    `op` is any but Adasum. Rows are dealt out in rank order; the first dim0 % size() ranks get one
    more than the others, and some get none if there are fewer rows than ranks.
    """
    check_process_set(process_set)
    compressed, context = compression.compress(tensor)
    arguments = (_session.current().name('reducescatter', name), reduce_op(None, op),
                 scales(prescale_factor, postscale_factor))
    if compressed.requires_grad and torch.is_grad_enabled():
        reduced = _ReducescatterFunction.apply(compressed, *arguments)
    else:
        reduced = _run_reducescatter(compressed, *arguments)
    return compression.decompress(reduced, context)


def reducescatter_async(tensor, name=None, op=Average, process_set=None, prescale_factor=1.0,
                        postscale_factor=1.0):
    """Starts a reducescatter; synchronize() returns this rank's rows."""
    check_process_set(process_set)
    name = _session.current().name('reducescatter', name)
    return _start_reducescatter([tensor], (name,), reduce_op(None, op),
                                scales(prescale_factor, postscale_factor), lambda parts: parts[0])


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average,
                          process_set=None, prescale_factor=1.0, postscale_factor=1.0):
    """reducescatter() of each tensor of a list into a list. Differentiable."""
    check_process_set(process_set)
    pairs = [compression.compress(tensor) for tensor in tensors]
    inputs = [tensor for tensor, _ in pairs]
    arguments = (group_names('grouped_reducescatter', name, len(inputs)), reduce_op(None, op),
                 scales(prescale_factor, postscale_factor))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        reduced = _GroupedReducescatterFunction.apply(arguments, *inputs)
    else:
        reduced = synchronize(_start_reducescatter(inputs, *arguments, list))
    return [compression.decompress(tensor, context)
            for tensor, (_, context) in zip(reduced, pairs)]


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=None,
                                prescale_factor=1.0, postscale_factor=1.0):
    """Starts a grouped reducescatter; synchronize() returns the list of this rank's rows."""
    check_process_set(process_set)
    names = group_names('grouped_reducescatter', name, len(tensors))
    return _start_reducescatter(list(tensors), names, reduce_op(None, op),
                                scales(prescale_factor, postscale_factor), list)


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


def _start_alltoall(tensors, names, splits, result):
    def finish(gathered):
        return result([(output, torch.tensor(rows, dtype=torch.int32))
                       for output, rows in gathered])

    return start_gathers(_native.ALLTOALL, tensors, names, splits, finish)


def _exchange(tensor, splits, name):
    output, rows = run_gather(_native.ALLTOALL, tensor, name, splits)
    return output, torch.tensor(rows, dtype=torch.int32)


def _own_rows(tensor):
    """Uninitialised room for this rank's share of the rows of `tensor`."""
    session = _session.current()
    if tensor.dim() == 0:
        return tensor.new_empty(())  # The library refuses the operation and says why.
    rows, more = divmod(tensor.shape[0], session.size)
    return torch.empty((rows + (session.rank < more), *tensor.shape[1:]), dtype=tensor.dtype)


def _reducescatter_operation(tensor, target, op, scale_factors):
    kind = _native.REDUCESCATTER, wire_dtype(tensor), op, 0, scale_factors
    return kind, tensor.data_ptr(), target.data_ptr(), tensor.shape


def _start_reducescatter(tensors, names, op, scale_factors, result):
    targets = [_own_rows(tensor) for tensor in tensors]
    operations = [_reducescatter_operation(tensor, target, op, scale_factors)
                  for tensor, target in zip(tensors, targets)]
    return start_group(names, operations, (tensors, targets), lambda natives: result(targets))


def _run_reducescatter(tensor, name, op, scale_factors):
    target = _own_rows(tensor)
    _session.current().run(name, *_reducescatter_operation(tensor, target, op, scale_factors))
    return target


def _scaled_gradient(gradient, op, scale_factors):
    """What a reducescatter's gradient is gathered from, by Horovod's rule."""
    factor = _session.current().size if op == Sum else 1
    for scale in scale_factors or ():
        factor *= scale
    gradient = as_memory(gradient)
    return gradient if factor == 1 else gradient * factor


class _AlltoallFunction(torch.autograd.Function):
    """Gradient: every row goes back to where it came from; rows that went nowhere get zeros."""

    @staticmethod
    def forward(ctx, tensor, splits, name):
        output, received = _exchange(tensor, splits, name)
        ctx.name, ctx.received, ctx.rows = name + '.grad', tuple(received.tolist()), tensor.shape[0]
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx, gradient, _):
        returned, _ = _exchange(as_memory(gradient), ctx.received, ctx.name)
        missing = ctx.rows - returned.shape[0]
        if missing:
            returned = torch.cat((returned, returned.new_zeros(missing, *returned.shape[1:])))
        return returned, None, None


class _ReducescatterFunction(torch.autograd.Function):
    """Gradient: the rows' gradients of all ranks, times size() after a sum, and the scales."""

    @staticmethod
    def forward(ctx, tensor, name, op, scale_factors):
        ctx.arguments = name + '.grad', op, scale_factors
        return _run_reducescatter(tensor, name, op, scale_factors)

    @staticmethod
    def backward(ctx, gradient):
        name, op, scale_factors = ctx.arguments
        own = _scaled_gradient(gradient, op, scale_factors)
        output, _ = run_gather(_native.ALLGATHER, own, name)
        return output, None, None, None


class _GroupedReducescatterFunction(torch.autograd.Function):
    """As _ReducescatterFunction, of a group."""

    @staticmethod
    def forward(ctx, arguments, *tensors):
        names, op, scale_factors = arguments
        ctx.arguments = tuple(name + '.grad' for name in names), op, scale_factors
        return tuple(synchronize(_start_reducescatter(list(tensors), names, op, scale_factors,
                                                      list)))

    @staticmethod
    def backward(ctx, *gradients):
        names, op, scale_factors = ctx.arguments
        own = [_scaled_gradient(gradient, op, scale_factors) for gradient in gradients]
        gathered = synchronize(start_allgather(own, names, list))
        return (None, *(output for output, _ in gathered))
