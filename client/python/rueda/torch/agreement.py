# SPDX-License-Identifier: Apache-2.0
"""What the ranks of one optimizer must agree on before they lay out its gradients.

Buckets are matched by name and size only: ranks with other models would add apples to oranges. All
ranks call with the same name; blocking, about 0.1 ms, once per layout.
"""

import hashlib
import itertools

import rueda
from rueda.exceptions import MismatchError
from rueda.torch.objects import allgather_object


def agree(name, number, slots, groups, settings):
    """The slots that have sparse gradients on some rank, in the order of `slots`.

    `number` is that of the optimizer, for messages. MismatchError on all ranks where they have
    other parameters, groups or settings; ValueError on all ranks for a sparse gradient under an
    operation that sparse gradients cannot have.
    """
    lines = [f'{slot.name} {slot.parameter.dtype} {tuple(slot.parameter.shape)} '
             f'strides {slot.parameter.stride()}' for slot in slots]
    lines.append(f'{len(groups)} groups of parameters: '
                 + str([[slot.name for slot in group] for group in groups]))
    lines.append(f'sparse_as_dense={settings.sparse_as_dense}, a limit of {settings.sparse_limit} '
                 f'bytes for sparse gradients, nan_guard={settings.nan_guard}')
    digest = hashlib.sha256('\n'.join(lines).encode()).digest()
    own = [index for index, slot in enumerate(slots) if not settings.sparse_as_dense
           and (slot.sparse or _is_sparse(slot.parameter.grad))]
    digests, indices = zip(*allgather_object((digest, own), name, settings.process_set))
    if len(set(digests)) > 1:
        raise MismatchError(_difference(
            number, settings.process_set.ranks,
            allgather_object(lines, name + '.text', settings.process_set)))
    sparse = [slots[index] for index in sorted(set(itertools.chain(*indices)))]
    if sparse and settings.op not in (rueda.Average, rueda.Sum):
        raise ValueError(f'the gradient of {sparse[0].name} is sparse; it can only be averaged or '
                         'summed, unless sparse_as_dense=True')
    return sparse


def _is_sparse(gradient):
    return gradient is not None and gradient.is_sparse


def _difference(number, ranks, descriptions):
    for rank, lines in zip(ranks, descriptions):
        for one, other in itertools.zip_longest(descriptions[0], lines, fillvalue='nothing more'):
            if one != other:
                return (f'ranks disagree on the parameters of optimizer {number}: rank {ranks[0]} '
                        f'has {one}; rank {rank} has {other}')
    return f'ranks disagree on the parameters of optimizer {number}'
