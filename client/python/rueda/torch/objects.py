# SPDX-License-Identifier: Apache-2.0
"""Python objects between ranks, pickled. Only for ranks of one job, which trust each other.

cloudpickle is used where it is installed, so that lambdas and local classes can be sent too. Any
thread; all ranks must call with the same name. HorovodInternalError: the transfer failed.
"""

import pickle

import torch

from rueda import _native, _session
from rueda.process_sets import global_process_set, members_of
from rueda.torch.ops import broadcast_, run_gather

try:
    import cloudpickle as _pickler
except ImportError:
    _pickler = pickle


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """The object of rank `root_rank`; the root gets its own one back. `obj` of others is ignored.

    Any size that fits into memory: the length travels as a 64-bit number. The two transfers are
    called `broadcast.<name>.sz` and `broadcast.<name>.t`. `process_set`: the ranks that take part.
    """
    session, members = _session.current(), members_of(process_set)
    name = session.name('object', None, members.id) if name is None else name
    is_root = session.rank == root_rank
    data = _dump(obj) if is_root else None
    count = torch.tensor([data.numel() if is_root else 0], dtype=torch.int64)
    broadcast_(count, root_rank, name + '.sz', process_set)
    if not is_root:
        data = torch.empty(int(count), dtype=torch.uint8)
    broadcast_(data, root_rank, name + '.t', process_set)
    return obj if is_root else pickle.loads(data.numpy())


def allgather_object(obj, name=None, process_set=global_process_set):
    """The list of the objects of all ranks, in rank order. `obj` may have any pickled size.

    `process_set`: the ranks that take part.
    """
    members = members_of(process_set)
    name = _session.current().name('allgather', name, members.id)
    gathered, rows = run_gather(_native.ALLGATHER, _dump(obj), name, members)
    return [pickle.loads(piece.numpy()) for piece in torch.split(gathered, rows)]


def _dump(obj):
    data = _pickler.dumps(obj, protocol=pickle.HIGHEST_PROTOCOL)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
