# SPDX-License-Identifier: Apache-2.0
"""Finds gradients that hold NaN or infinity before they spread to all ranks.

Each bucket is read once, when it is complete; one operation of 8 bytes per step then tells all
ranks. One thread at a time: the one that runs backward and step().
"""

import torch

from rueda import _native, _session

_NOTHING = torch.iinfo(torch.int64).max


class NanGuard:
    """Watches the buckets of one reducer; `slots` in one order on all ranks."""

    def __init__(self, name, slots, settings):
        session = _session.current()
        self._rank, self._size = session.rank, session.size
        self._name = session.name('allreduce', name)
        self._names = [slot.name for slot in slots]
        # Backward runs through the model from its end.
        self._order = {slot: index for index, slot in enumerate(reversed(slots))}
        self._found = torch.full((1,), _NOTHING, dtype=torch.int64)
        self._kind = settings.kind(self._found, _native.MIN)

    def look(self, bucket):
        """Reads what `bucket` is about to send."""
        if all(map(_sum_is_finite, bucket.sent)):
            return
        bad = [self._order[slot] for slot, piece in bucket.pieces() if not _is_finite(piece)]
        if bad:
            code = min(bad) * self._size + self._rank
            self._found.fill_(min(code, int(self._found)))

    def agree(self):
        """What the first rank found, as text, or None. Blocking, the same answer on all ranks.

        First is what backward reaches first, and among ranks the lowest.
        """
        address = self._found.data_ptr()
        try:
            _session.current().run(self._name, self._kind, address, address, self._found.shape)
            code = int(self._found)
        finally:
            self._found.fill_(_NOTHING)
        if code == _NOTHING:
            return None
        index, rank = divmod(code, self._size)
        return (f'the gradient of {self._names[-1 - index]} holds NaN or infinity on rank {rank}; '
                'no step was taken, and the gradients are undefined')


def _sum_is_finite(tensor):
    # NaN and infinity survive a sum. Where only the sum overflows, each element is looked at.
    return not _may_hold_nan(tensor) or bool(torch.isfinite(_readable(tensor).sum()))


def _is_finite(tensor):
    return not _may_hold_nan(tensor) or bool(torch.isfinite(_readable(tensor)).all())


def _may_hold_nan(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


def _readable(tensor):
    # 8-bit floats can be converted, but not summed.
    return tensor.detach().float() if tensor.element_size() == 1 else tensor.detach()
