# SPDX-License-Identifier: Apache-2.0
"""Collective operations on single PyTorch tensors, with the names and arguments of Horovod.

Tensors are dense, contiguous and in host memory. All ranks must call with the same name, dtype,
shape (but dim 0 in allgather) and arguments; a disagreement raises MismatchError on all of them and
leaves the session usable. Any thread; two calls in flight may not have the same name (ValueError).

Calls without `_async` block until all ranks have called. `_async` calls return a handle for
poll() and synchronize(); until then the tensors may not be touched. A trailing `_` means in place.
ValueError: unsuitable tensor or argument. HorovodInternalError: the operation failed.
"""

import math

import torch

from rueda import _native, _session, check_process_set
from rueda._handles import Pending
from rueda.torch._tensors import as_memory, reduce_op, scales, wire_dtype
from rueda.torch.compression import Compression

_BARRIER = (_native.BARRIER, _native.DTYPES['uint8'], _native.SUM, 0, None)
_NO_ELEMENTS = (0,)


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0, process_set=None):
    """Reduces over all ranks into a new tensor. Differentiable.

    `op` is Average (the default), Sum, Min, Max or Product. Integer averages are truncated.
    `compression` converts before and back after. `average` is deprecated.
    """
    check_process_set(process_set)
    op = reduce_op(average, op)
    compressed, context = compression.compress(tensor)
    arguments = (_session.current().name('allreduce', name), op,
                 scales(prescale_factor, postscale_factor))
    if compressed.requires_grad and torch.is_grad_enabled():
        reduced = _AllreduceFunction.apply(compressed, *arguments)
    else:
        reduced = run_allreduce(compressed, torch.empty_like(compressed), *arguments)
    return compression.decompress(reduced, context)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=None):
    """Reduces over all ranks in place; returns `tensor`."""
    check_process_set(process_set)
    return run_allreduce(tensor, tensor, _session.current().name('allreduce', name),
                         reduce_op(average, op), scales(prescale_factor, postscale_factor))


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                    postscale_factor=1.0, process_set=None):
    """Starts a reduction into a new tensor, which synchronize() returns."""
    wire_dtype(tensor)
    return _start_allreduce(tensor, torch.empty_like(tensor, requires_grad=False), average, name,
                            op, prescale_factor, postscale_factor, process_set)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                     postscale_factor=1.0, process_set=None):
    """Starts a reduction in place; synchronize() returns `tensor`."""
    return _start_allreduce(tensor, tensor, average, name, op, prescale_factor, postscale_factor,
                            process_set)


def allgather(tensor, name=None, process_set=None):
    """Concatenates the tensors of all ranks along dim 0, in rank order. Differentiable.

    Dim 0 may differ between ranks, the other dims may not. A scalar is an error.
    """
    if tensor.requires_grad and torch.is_grad_enabled():
        check_process_set(process_set)
        return _AllgatherFunction.apply(tensor, _session.current().name('allgather', name))
    check_process_set(process_set)
    return run_gather(_native.ALLGATHER, tensor, _session.current().name('allgather', name))[0]


def allgather_async(tensor, name=None, process_set=None):
    """Starts an allgather; synchronize() returns the new tensor."""
    check_process_set(process_set)
    name = _session.current().name('allgather', name)
    return start_allgather([tensor], (name,), lambda gathered: gathered[0][0])


def broadcast(tensor, root_rank, name=None, process_set=None):
    """A new tensor with the values of `tensor` on rank `root_rank`. Differentiable."""
    check_process_set(process_set)
    name = _session.current().name('broadcast', name)
    if tensor.requires_grad and torch.is_grad_enabled():
        return _BroadcastFunction.apply(tensor, root_rank, name)
    return run_broadcast(tensor, torch.empty_like(tensor), root_rank, name)


def broadcast_(tensor, root_rank, name=None, process_set=None):
    """Overwrites `tensor` with its values on rank `root_rank`; returns it."""
    check_process_set(process_set)
    return run_broadcast(tensor, tensor, root_rank, _session.current().name('broadcast', name))


def broadcast_async(tensor, root_rank, name=None, process_set=None):
    """Starts a broadcast into a new tensor, which synchronize() returns."""
    wire_dtype(tensor)
    return _start_broadcast(tensor, torch.empty_like(tensor, requires_grad=False), root_rank, name,
                            process_set)


def broadcast_async_(tensor, root_rank, name=None, process_set=None):
    """Starts a broadcast in place; synchronize() returns `tensor`."""
    return _start_broadcast(tensor, tensor, root_rank, name, process_set)


def barrier(process_set=None):
    """Blocks until all ranks have called it."""
    check_process_set(process_set)
    _session.current().run('barrier', _BARRIER, 0, 0, _NO_ELEMENTS)


def poll(handle):
    """Whether synchronize(handle) would return at once. Never blocks.

    ValueError for a handle that is unknown or has been synchronised.
    """
    return _session.current().handles.poll(handle)


def synchronize(handle):
    """Waits for an `_async` call and returns its result; None for an unknown or used handle."""
    return _session.current().handles.synchronize(handle)


def run_allreduce(source, target, name, op, scale_factors):
    """Blocking allreduce of one tensor into another of its shape and dtype; returns `target`."""
    kind = _native.ALLREDUCE, wire_dtype(source), op, 0, scale_factors
    _session.current().run(name, kind, source.data_ptr(), target.data_ptr(), source.shape)
    return target


def run_broadcast(source, target, root, name):
    """Blocking broadcast of one tensor into another of its shape and dtype; returns `target`."""
    kind = _broadcast_kind(source, root)
    _session.current().run(name, kind, source.data_ptr(), target.data_ptr(), source.shape)
    return target


def run_gather(kind, tensor, name, splits=None):
    """Blocking allgather or alltoall; returns (output, rows from each rank).

    The output lies in memory of the arena, which comes again: new memory of the process costs more
    than the rows that are copied there.
    """
    row_bytes = math.prod(tensor.shape[1:]) * tensor.element_size()
    operation = (kind, wire_dtype(tensor), _native.SUM, 0, None), tensor.data_ptr(), tensor.shape
    buffer, rows = _session.current().gather(name, *operation, splits, row_bytes)
    return _output_of(buffer, rows, tensor)


def start(name, operation, tensors, result):
    """Submits one operation (see Session.submit) that uses `tensors`; returns a handle.

    synchronize() will return `result`.
    """
    session = _session.current()
    native = session.submit(name, *operation)
    return session.handles.add(Pending((native,), tensors, result))


def start_group(names, operations, tensors, finish, abandon=None):
    """Submits operations (see Session.submit_group) that use `tensors`; returns a handle.

    `finish(natives)` makes the result of synchronize(); `abandon` see Pending.
    """
    session = _session.current()
    natives = session.submit_group(names, operations)
    return session.handles.add(Pending(natives, tensors, None, finish, abandon))


def allreduce_operation(source, target, op, scale_factors):
    """The `operation` for start(), or one of those for start_group()."""
    kind = _native.ALLREDUCE, wire_dtype(source), op, 0, scale_factors
    address = source.data_ptr()
    return kind, address, address if target is source else target.data_ptr(), source.shape


def broadcast_operation(source, target, root):
    """As allreduce_operation()."""
    return _broadcast_kind(source, root), source.data_ptr(), target.data_ptr(), source.shape


def start_allgather(tensors, names, result):
    """Submits allgathers; `result(gathered)` makes the result of synchronize().

    `gathered` lists (tensor, rows that each rank gave) for each input.
    """
    return start_gathers(_native.ALLGATHER, tensors, names, [None] * len(tensors), result)


def start_gathers(kind, tensors, names, splits, result):
    """As start_allgather(), of either gathering kind; `splits` lists those of an alltoall."""
    session = _session.current()
    operations = [((kind, wire_dtype(tensor), _native.SUM, 0, None), tensor.data_ptr(), 0,
                   tensor.shape, parts) for tensor, parts in zip(tensors, splits)]

    def finish(natives):
        return result([_output_of(*session.take_gathered(native), tensor)
                       for native, tensor in zip(natives, tensors)])

    def abandon(natives):
        for native in natives:
            session.release(native)

    return start_group(names, operations, tensors, finish, abandon)


def _output_of(buffer, rows, like):
    """The rows that a gather has brought, as a tensor; of tensors as `like`."""
    shape = (sum(rows), *like.shape[1:])
    if not buffer:
        return torch.empty(shape, dtype=like.dtype), rows
    return torch.frombuffer(buffer, dtype=like.dtype).view(shape), rows


def _start_allreduce(source, target, average, name, op, prescale, postscale, process_set):
    check_process_set(process_set)
    operation = allreduce_operation(source, target, reduce_op(average, op),
                                    scales(prescale, postscale))
    return start(_session.current().name('allreduce', name), operation, (source, target), target)


def _start_broadcast(source, target, root, name, process_set):
    check_process_set(process_set)
    operation = broadcast_operation(source, target, root)
    return start(_session.current().name('broadcast', name), operation, (source, target), target)


def _broadcast_kind(tensor, root):
    size = _session.current().size
    if not 0 <= root < size:
        raise ValueError(f'root_rank {root} is not a rank: the job has ranks 0 to {size - 1}')
    return _native.BROADCAST, wire_dtype(tensor), _native.SUM, root, None


class _AllreduceFunction(torch.autograd.Function):
    """Gradient: the same reduction of the incoming gradient."""

    @staticmethod
    def forward(ctx, tensor, name, op, scale_factors):
        ctx.arguments = name + '.grad', op, scale_factors
        return run_allreduce(tensor, torch.empty_like(tensor), name, op, scale_factors)

    @staticmethod
    def backward(ctx, gradient):
        gradient = as_memory(gradient)
        return run_allreduce(gradient, torch.empty_like(gradient), *ctx.arguments), None, None, None


class _AllgatherFunction(torch.autograd.Function):
    """Gradient: the average over ranks, of which each rank takes its own rows."""

    @staticmethod
    def forward(ctx, tensor, name):
        output, rows = run_gather(_native.ALLGATHER, tensor, name)
        rank = _session.current().rank
        ctx.name, ctx.first, ctx.count = name + '.grad', sum(rows[:rank]), rows[rank]
        return output

    @staticmethod
    def backward(ctx, gradient):
        gradient = as_memory(gradient)
        mean = run_allreduce(gradient, torch.empty_like(gradient), ctx.name, _native.AVERAGE, None)
        return mean.narrow(0, ctx.first, ctx.count), None


class _BroadcastFunction(torch.autograd.Function):
    """Gradient: the average over ranks on the root, zero elsewhere."""

    @staticmethod
    def forward(ctx, tensor, root, name):
        ctx.name, ctx.root = name + '.grad', root
        return run_broadcast(tensor, torch.empty_like(tensor), root, name)

    @staticmethod
    def backward(ctx, gradient):
        gradient = as_memory(gradient)
        mean = run_allreduce(gradient, torch.empty_like(gradient), ctx.name, _native.AVERAGE, None)
        return (mean if _session.current().rank == ctx.root else mean.zero_()), None, None
