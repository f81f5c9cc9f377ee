# SPDX-License-Identifier: Apache-2.0
"""Operation structs for the C ABI, filled once per name and reused. Any thread.

A training loop repeats the same names, so the structs are kept in a small cache. While a call uses
an entry it is out of the cache: two threads never fill one struct at the same time.
"""

import collections

from rueda import _native

# Enough for the gradients of a large model one by one; an entry is about 0.5 KiB.
_CACHE_ENTRIES = 4096

# Marks the name of a call that was given none.
NUMBERED = '.noname.'

# What all ranks must agree on besides name and shape. `dtype` is a wire value of _native.DTYPES.
# `scales` is None or (prescale, postscale). `root` is for broadcast only.
Kind = collections.namedtuple('Kind', 'kind dtype reduce_op root scales')
Kind.__new__.__defaults__ = (0, None)


class Entry:
    """A contiguous array of operations that is submitted as one call, and room for its handles."""

    __slots__ = ('ops', 'handles', 'address', 'handles_address', 'kinds', 'shapes', 'arrays')

    def __init__(self, names):
        count = len(names)
        self.ops, self.handles = _native.op_array(count)
        self.address = _native.address_of(self.ops)
        self.handles_address = _native.address_of(self.handles)
        self.kinds = [None] * count
        self.shapes = [()] * count
        self.arrays = [None] * count
        for op, name in zip(self.ops, names):
            op.struct_size = _native.OP_BYTES
            op.name = name.encode()

    def fill(self, index, kind, source, target, shape):
        """Describes operation `index`. `source` and `target` are addresses, 0 for none."""
        op = self.ops[index]
        op.input = source
        op.output = target
        if kind != self.kinds[index]:
            op.kind, op.dtype, op.reduce_op, op.root = kind[:4]
            scales = kind.scales
            op.scale_set = 0 if scales is None else 1
            op.prescale, op.postscale = scales or (1.0, 1.0)
            self.kinds[index] = kind
        if shape != self.shapes[index]:
            array = _native.int64_array(shape) if shape else None
            op.shape = _native.address_of(array) if shape else None
            op.ndim = len(shape)
            self.arrays[index] = array
            self.shapes[index] = tuple(shape)


class EntryCache:
    """Entries by name, least recently used first out. Any thread: single dict calls are atomic."""

    def __init__(self):
        self._entries = {}

    def take(self, key):
        """The entry of `key`, out of the cache until put() is called; None if there is none."""
        return self._entries.pop(key, None)

    def put(self, key, entry):
        """Gives an entry back once the call that used it has returned.

        Numbered names never come back (see Session.name), so they are not kept.
        """
        if NUMBERED not in (key if key.__class__ is str else key[0]):
            self._entries[key] = entry
            if len(self._entries) > _CACHE_ENTRIES:
                self._entries.pop(next(iter(self._entries), None), None)
