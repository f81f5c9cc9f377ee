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

from rueda import Adasum, _native, _session
from rueda._handles import Pending
from rueda.process_sets import global_process_set, members_of
from rueda.torch._tensors import as_memory, reduce_op, scales, wire_dtype
from rueda.torch.compression import Compression

_BARRIER = (_native.BARRIER, _native.DTYPES['uint8'], _native.SUM, 0, None)
_NO_ELEMENTS = (0,)


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None,
              prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set):
    """Reduces over all ranks into a new tensor. Differentiable.

    `op` is Average (the default), Sum, Min, Max, Product, or Adasum (of floats, in the global set
    only). Integer averages are truncated. `compression` converts before and back after. `average`
    is deprecated.
    """
    op = reduction(average, op, process_set)
    members = members_of(process_set)
    compressed, context = compression.compress(tensor)
    arguments = (_session.current().name('allreduce', name, members.id), op,
                 scales(prescale_factor, postscale_factor), members)
    if compressed.requires_grad and torch.is_grad_enabled():
        reduced = _AllreduceFunction.apply(compressed, *arguments)
    else:
        reduced = run_allreduce(compressed, torch.empty_like(compressed), *arguments)
    return compression.decompress(reduced, context)


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    """Reduces over all ranks in place; returns `tensor`."""
    op = reduction(average, op, process_set)
    members = members_of(process_set)
    return run_allreduce(tensor, tensor, _session.current().name('allreduce', name, members.id), op,
                         scales(prescale_factor, postscale_factor), members)


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                    postscale_factor=1.0, process_set=global_process_set, priority=0):
    """Starts a reduction into a new tensor, which synchronize() returns.

    Of what all ranks have started at one moment the highest `priority` runs first.
    """
    wire_dtype(tensor)
    return _start_allreduce(tensor, torch.empty_like(tensor, requires_grad=False), name,
                            reduction(average, op, process_set),
                            scales(prescale_factor, postscale_factor), process_set, priority)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0,
                     postscale_factor=1.0, process_set=global_process_set, priority=0):
    """Starts a reduction in place; synchronize() returns `tensor`. `priority`: allreduce_async."""
    return _start_allreduce(tensor, tensor, name, reduction(average, op, process_set),
                            scales(prescale_factor, postscale_factor), process_set, priority)


def allgather(tensor, name=None, process_set=global_process_set):
    """Concatenates the tensors of all ranks along dim 0, in rank order. Differentiable.

    Dim 0 may differ between ranks, the other dims may not. A scalar is an error.
    """
    members = members_of(process_set)
    name = _session.current().name('allgather', name, members.id)
    if tensor.requires_grad and torch.is_grad_enabled():
        return _AllgatherFunction.apply(tensor, name, members)
    return run_gather(_native.ALLGATHER, tensor, name, members)[0]


def allgather_async(tensor, name=None, process_set=global_process_set):
    """Starts an allgather; synchronize() returns the new tensor."""
    members = members_of(process_set)
    name = _session.current().name('allgather', name, members.id)
    return start_allgather([tensor], (name,), lambda gathered: gathered[0][0], members)


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """A new tensor with the values of `tensor` on rank `root_rank` of the job. Differentiable."""
    members = members_of(process_set)
    name = _session.current().name('broadcast', name, members.id)
    if tensor.requires_grad and torch.is_grad_enabled():
        return _BroadcastFunction.apply(tensor, root_rank, name, members)
    return run_broadcast(tensor, torch.empty_like(tensor), root_rank, name, members)


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """Overwrites `tensor` with its values on rank `root_rank` of the job; returns it."""
    members = members_of(process_set)
    name = _session.current().name('broadcast', name, members.id)
    return run_broadcast(tensor, tensor, root_rank, name, members)


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts a broadcast into a new tensor, which synchronize() returns."""
    wire_dtype(tensor)
    return _start_broadcast(tensor, torch.empty_like(tensor, requires_grad=False), root_rank, name,
                            process_set)


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """Starts a broadcast in place; synchronize() returns `tensor`."""
    return _start_broadcast(tensor, tensor, root_rank, name, process_set)


def barrier(process_set=global_process_set):
    """Blocks until all ranks of the set have called it. Other sets are not held up."""
    kind = in_set(_BARRIER, members_of(process_set))
    _session.current().run('barrier', kind, 0, 0, _NO_ELEMENTS)


def poll(handle):
    """Whether synchronize(handle) would return at once. Never blocks.

    ValueError for a handle that is unknown or has been synchronised.
    """
    return _session.current().handles.poll(handle)


def synchronize(handle):
    """Waits for an `_async` call and returns its result; None for an unknown or used handle."""
    return _session.current().handles.synchronize(handle)


def reduction(average, op, process_set):
    """The reduce operation of a call. NotImplementedError: Adasum in a smaller process set."""
    op = reduce_op(average, op)
    if op == Adasum and process_set is not None and process_set is not global_process_set:
        raise NotImplementedError('Adasum does not support other process sets than the global one')
    return op


def in_set(kind, members, priority=0):
    """A `kind` (see Session.run) of the global process set, in another one or of a priority."""
    return kind if not members.id and not priority else (*kind, members.id, priority)


def run_allreduce(source, target, name, op, scale_factors, members):
    """Blocking allreduce of one tensor into another of its shape and dtype; returns `target`."""
    kind = in_set((_native.ALLREDUCE, wire_dtype(source), op, 0, scale_factors), members)
    _session.current().run(name, kind, source.data_ptr(), target.data_ptr(), source.shape)
    return target


def run_broadcast(source, target, root, name, members):
    """Blocking broadcast of one tensor into another of its shape and dtype; returns `target`."""
    kind = _broadcast_kind(source, root, members)
    _session.current().run(name, kind, source.data_ptr(), target.data_ptr(), source.shape)
    return target


def run_gather(kind, tensor, name, members, splits=None):
    """Blocking allgather or alltoall; returns (output, rows from each rank).

    The output lies in memory of the arena, which comes again: new memory of the process costs more
    than the rows that are copied there.
    """
    row_bytes = math.prod(tensor.shape[1:]) * tensor.element_size()
    kind = in_set((kind, wire_dtype(tensor), _native.SUM, 0, None), members)
    buffer, rows = _session.current().gather(name, kind, tensor.data_ptr(), tensor.shape, splits,
                                             row_bytes, members.size)
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


def allreduce_operation(source, target, op, scale_factors, members, priority=0):
    """The `operation` for start(), or one of those for start_group()."""
    kind = in_set((_native.ALLREDUCE, wire_dtype(source), op, 0, scale_factors), members, priority)
    address = source.data_ptr()
    return kind, address, address if target is source else target.data_ptr(), source.shape


def broadcast_operation(source, target, root, members):
    """As allreduce_operation()."""
    kind = _broadcast_kind(source, root, members)
    return kind, source.data_ptr(), target.data_ptr(), source.shape


def start_allgather(tensors, names, result, members):
    """Submits allgathers; `result(gathered)` makes the result of synchronize().

    `gathered` lists (tensor, rows that each rank gave) for each input.
    """
    return start_gathers(_native.ALLGATHER, tensors, names, [None] * len(tensors), result, members)


def start_gathers(kind, tensors, names, splits, result, members):
    """As start_allgather(), of either gathering kind; `splits` lists those of an alltoall."""
    session = _session.current()
    operations = [(in_set((kind, wire_dtype(tensor), _native.SUM, 0, None), members),
                   tensor.data_ptr(), 0, tensor.shape, parts)
                  for tensor, parts in zip(tensors, splits)]

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


def _start_allreduce(source, target, name, op, scale_factors, process_set, priority):
    members = members_of(process_set)
    operation = allreduce_operation(source, target, op, scale_factors, members, priority)
    name = _session.current().name('allreduce', name, members.id)
    return start(name, operation, (source, target), target)


def _start_broadcast(source, target, root, name, process_set):
    members = members_of(process_set)
    operation = broadcast_operation(source, target, root, members)
    name = _session.current().name('broadcast', name, members.id)
    return start(name, operation, (source, target), target)


def _broadcast_kind(tensor, root, members):
    size = _session.current().size
    if not 0 <= root < size:  # Of the job, in any process set.
        raise ValueError(f'root_rank {root} is not a rank: the job has ranks 0 to {size - 1}')
    return in_set((_native.BROADCAST, wire_dtype(tensor), _native.SUM, root, None), members)


class _AllreduceFunction(torch.autograd.Function):
    """Gradient: the same reduction of the incoming gradient."""

    @staticmethod
    def forward(ctx, tensor, name, *arguments):
        ctx.arguments = name + '.grad', *arguments
        return run_allreduce(tensor, torch.empty_like(tensor), name, *arguments)

    @staticmethod
    def backward(ctx, gradient):
        gradient = as_memory(gradient)
        return (run_allreduce(gradient, torch.empty_like(gradient), *ctx.arguments),
                *[None] * len(ctx.arguments))


class _AllgatherFunction(torch.autograd.Function):
    """Gradient: the average over ranks, of which each rank takes its own rows."""

    @staticmethod
    def forward(ctx, tensor, name, members):
        output, rows = run_gather(_native.ALLGATHER, tensor, name, members)
        ctx.name, ctx.members = name + '.grad', members
        ctx.first, ctx.count = sum(rows[:members.rank]), rows[members.rank]
        return output

    @staticmethod
    def backward(ctx, gradient):
        mean = average_gradient(gradient, ctx.name, ctx.members)
        return mean.narrow(0, ctx.first, ctx.count), None, None


class _BroadcastFunction(torch.autograd.Function):
    """Gradient: the average over ranks on the root, zero elsewhere."""

    @staticmethod
    def forward(ctx, tensor, root, name, members):
        ctx.name, ctx.root, ctx.members = name + '.grad', root, members
        return run_broadcast(tensor, torch.empty_like(tensor), root, name, members)

    @staticmethod
    def backward(ctx, gradient):
        mean = average_gradient(gradient, ctx.name, ctx.members)
        is_root = _session.current().rank == ctx.root
        return mean if is_root else mean.zero_(), None, None, None


def average_gradient(gradient, name, members):
    """The average over ranks, in a new tensor."""
    gradient = as_memory(gradient)
    return run_allreduce(gradient, torch.empty_like(gradient), name, _native.AVERAGE, None, members)
