# SPDX-License-Identifier: Apache-2.0
"""Reductions of sparse tensors. Rules as in ops.py."""

import torch

import rueda
from rueda import _session
from rueda.exceptions import MismatchError
from rueda.process_sets import global_process_set, members_of
from rueda.torch._tensors import reduce_op
from rueda.torch.ops import start_allgather, synchronize

_CHECKS_INVARIANTS = hasattr(torch.sparse, 'check_sparse_tensor_invariants')  # PyTorch 2.


def sparse_allreduce_async(tensor, name=None, op=rueda.Average, process_set=global_process_set):
    """Starts the reduction of a sparse COO tensor, of equal shape on all ranks; coalesced or not.

    Entries of one rank with equal indices are merged before they travel. Returns a function without
    arguments that waits and returns the result, a sparse COO tensor, not coalesced: entries of
    different ranks with equal indices count together. `op` is Average or Sum.

    ValueError: not a sparse COO tensor in host memory, or another operation. MismatchError, from
    the returned function: the ranks disagree.
    """
    members = members_of(process_set)
    ranks = (process_set or global_process_set).ranks
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.sparse_coo:
        kind = getattr(tensor, 'layout', type(tensor).__name__)
        raise ValueError(f'sparse_allreduce_async needs a sparse COO tensor, not {kind}')
    op = reduce_op(None, op)
    if op not in (rueda.Average, rueda.Sum):
        raise ValueError('a sparse tensor can only be averaged or summed')
    shape = tensor.shape
    merged = tensor.detach().coalesce()
    values = merged.values().contiguous()
    if op == rueda.Average:  # Before the gather, which makes more of them.
        values = _divided(values, members.size, in_place=not tensor.is_coalesced())
    # The extent, too: ranks whose tensors differ must not add apples to oranges.
    extent = torch.tensor([len(shape), *shape, merged.sparse_dim()], dtype=torch.int64)
    indices = torch.cat((extent, merged.indices().reshape(-1)))
    base = _session.current().name('allgather', name, members.id)
    handle = start_allgather([indices, values], (base + '.indices', base + '.values'),
                             lambda gathered: gathered, members)

    def finish():
        (all_indices, counts), (all_values, _) = synchronize(handle)
        pieces = torch.split(all_indices, counts)
        _check_extents([piece[:2 + int(piece[0])].tolist() for piece in pieces], ranks, base)
        all_indices = torch.cat([piece[len(extent):].view(merged.sparse_dim(), -1)
                                 for piece in pieces], dim=1)
        return torch.sparse_coo_tensor(all_indices, all_values, shape)

    return finish


def coalesced(rows, values, shape):
    """A sparse COO tensor of these rows of dim 0, which must be distinct and ascending. No copy."""
    indices = rows.unsqueeze(0)
    if _CHECKS_INVARIANTS:
        tensor = torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)
    else:
        tensor = torch._sparse_coo_tensor_unsafe(indices, values, shape)
    return tensor._coalesced_(True)


def _divided(values, size, in_place):
    """The values by `size`; integers are truncated."""
    mode = None if values.is_floating_point() or values.is_complex() else 'trunc'
    return torch.div(values, size, rounding_mode=mode, out=values if in_place else None)


def _check_extents(extents, ranks, name):
    for rank, extent in zip(ranks, extents):
        if extent != extents[0]:
            raise MismatchError(f"Mismatched sparse tensors for '{name}': rank {ranks[0]} has "
                                f'{_words(extents[0])}, but rank {rank} has {_words(extent)}')


def _words(extent):
    return f'shape {extent[1:-1]} with {extent[-1]} sparse dimensions'
