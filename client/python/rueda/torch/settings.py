# SPDX-License-Identifier: Apache-2.0
"""What an optimizer was told once about its reductions. Immutable; any thread.

The environment is read here: RUEDA_NAN_GUARD, RUEDA_SPARSE_LIMIT_BYTES and HOROVOD_ELASTIC, when
the optimizer is made. They must be equal on all ranks.
"""

import os
import re

from rueda import _native
from rueda.process_sets import check_process_set, global_process_set, members_of
from rueda.torch._tensors import wire_dtype
from rueda.torch.compression import Compression
from rueda.torch.ops import in_set

# The reduced gradient of one sparse parameter may take so much; RUEDA_SPARSE_LIMIT_BYTES.
SPARSE_LIMIT_BYTES = 1 << 30


class Settings:
    """`scales`: None or (prescale, postscale)."""

    def __init__(self, op, scales=None, compression=Compression.none, sparse_as_dense=False,
                 process_set=global_process_set, nan_guard=False):
        self.op = op
        self.scales = scales
        self.compression = compression
        self.sparse_as_dense = sparse_as_dense
        self.process_set = global_process_set if process_set is None else process_set
        self.nan_guard = bool(nan_guard) or os.environ.get('RUEDA_NAN_GUARD') == '1'
        self.sparse_limit = _bytes_of('RUEDA_SPARSE_LIMIT_BYTES', SPARSE_LIMIT_BYTES)
        self._elastic = os.environ.get('HOROVOD_ELASTIC') == '1'

    @property
    def ranks(self):
        """Ranks of the process set; None for all of the job."""
        return None if self.process_set is global_process_set else tuple(self.process_set.ranks)

    @property
    def flat(self):
        """Whether gradients can be laid out in buckets: what is sent of each is known before.

        A compressor of the user's may send anything, so there each gradient goes on its own.
        """
        return self.compression in (Compression.none, Compression.fp16, Compression.bf16)

    @property
    def staged_dtype(self):
        """The dtype of the copies that are sent; None to send gradients in their own."""
        return getattr(self.compression, 'wire_dtype', None) if self.flat else None

    @property
    def active(self):
        """Whether gradients are to be reduced at all; else the optimizer is a plain local one.

        A job of one rank reduces only where it may grow. ValueError: the process set is not
        registered, e.g. in a session that was opened later.
        """
        included = self.process_set.included()
        if included is None:
            check_process_set(self.process_set)
        return included and (self.process_set.size() > 1 or self._elastic)

    def kind(self, tensor, op=None):
        """The `kind` (see Session.run) of the allreduce of `tensor`, unscaled for another `op`."""
        own = (self.op, 0, self.scales) if op is None else (op, 0, None)
        return in_set((_native.ALLREDUCE, wire_dtype(tensor), *own), members_of(self.process_set))


def _bytes_of(name, default):
    text = os.environ.get(name)
    if text is None:
        return default
    if not re.fullmatch('[0-9]+', text):
        raise ValueError(f'{name}={text} is not a number of bytes')
    return int(text)
