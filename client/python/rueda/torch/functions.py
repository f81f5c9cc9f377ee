# SPDX-License-Identifier: Apache-2.0
"""Gives all ranks the parameters and the optimizer state of one of them.

To be called by all ranks, usually once before training. Blocking. ValueError: wrong arguments;
HorovodInternalError: a transfer failed, e.g. because models differ between ranks.
"""

import torch

from rueda import _session
from rueda.process_sets import global_process_set, members_of
from rueda.torch._tensors import as_memory
from rueda.torch.objects import allgather_object, broadcast_object  # noqa: F401 - for scripts
from rueda.torch.ops import broadcast_operation, start_group, synchronize


def broadcast_parameters(params, root_rank, process_set=global_process_set):
    """Overwrites parameters with those of rank `root_rank` of the job.

    `params`: a dict such as model.state_dict() (values that are not tensors are left alone), or a
    list of tensors or of pairs (name, tensor).
    """
    if isinstance(params, dict):
        named = sorted(params.items())
    elif isinstance(params, list):
        named = [pair if isinstance(pair, tuple) else (None, pair) for pair in params]
    elif hasattr(params, '__next__') or hasattr(params, '__iter__'):
        return broadcast_parameters(list(params), root_rank, process_set)
    else:
        raise ValueError(f'invalid params of type {type(params)}: expected a state_dict, or a list '
                         'of tensors or of named tensors')
    tensors = [(name, value) for name, value in named if isinstance(value, torch.Tensor)]
    if not isinstance(params, dict) and len(tensors) < len(named):
        raise ValueError('params holds something that is not a tensor')
    _broadcast_in_place(tensors, root_rank, members_of(process_set))


def broadcast_optimizer_state(optimizer, root_rank, model=None, process_set=global_process_set):
    """Gives the optimizer the state and the options (learning rates, ...) of rank `root_rank`.

    Slots that the root lacks are dropped, slots that only it has are made: no step is taken for
    that, so neither parameters nor step counters change. `model` is not needed. ValueError for
    LBFGS, whose state is not bound to parameters.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError('cannot broadcast torch.optim.LBFGS state')
    members = members_of(process_set)
    if members.size == 1:
        return
    tensors = []
    is_root = _session.current().rank == root_rank
    skeleton = _take_out(optimizer.state_dict(), tensors) if is_root else None
    skeleton = broadcast_object(skeleton, root_rank, 'optimizer_state', process_set)
    if not is_root:
        skeleton = _put_in(skeleton, tensors)
    _broadcast_in_place([(f'optimizer_state.{index}', tensor)
                         for index, tensor in enumerate(tensors)], root_rank, members)
    if not is_root:
        _load(optimizer, skeleton)


def _load(optimizer, state):
    """Gives the optimizer the state of the root, in the dtypes that it has there."""
    optimizer.load_state_dict(state)
    # PyTorch has cast tensors to the dtype of their parameter, and cannot copy some containers.
    keys = [key for group in state['param_groups'] for key in group['params']]
    parameters = [parameter for group in optimizer.param_groups for parameter in group['params']]
    for key, parameter in zip(keys, parameters):
        if key in state['state']:
            optimizer.state[parameter] = state['state'][key]


class _TensorPlace:
    """Stands for a tensor inside a pickled state."""

    def __init__(self, tensor):
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype


def _take_out(value, tensors):
    """A copy of nested dicts, lists and tuples with places for tensors, which are appended."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _TensorPlace(value)
    return _map(value, lambda item: _take_out(item, tensors))


def _put_in(value, tensors):
    """The reverse: new tensors in the places; they are appended in the same order."""
    if isinstance(value, _TensorPlace):
        tensors.append(torch.zeros(value.shape, dtype=value.dtype))
        return tensors[-1]
    return _map(value, lambda item: _put_in(item, tensors))


def _map(value, function):
    if isinstance(value, dict):
        return {key: function(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(function(item) for item in value)
    return value


def _broadcast_in_place(named, root_rank, members):
    """Broadcasts tensors, all at once. Those that cannot be sent as they are go through a copy."""
    if members.size == 1 or not named:
        return
    session = _session.current()
    pieces = [as_memory(tensor.detach()) for _, tensor in named]
    names = tuple(session.name('broadcast', name, members.id) for name, _ in named)
    operations = [broadcast_operation(piece, piece, root_rank, members) for piece in pieces]
    synchronize(start_group(names, operations, pieces, lambda natives: None))
    with torch.no_grad():
        for (_, tensor), piece in zip(named, pieces):
            if piece.data_ptr() != tensor.data_ptr():
                tensor.copy_(piece)
