# SPDX-License-Identifier: Apache-2.0
"""Operation structs for the C ABI, filled once per name and reused. Any thread.

A training loop repeats the same names with the same tensors, so structs are kept in a small cache
and only what changed is written. While a call uses an entry it is out of the cache: two threads
never fill one struct at the same time.
"""

from rueda import _native

# Marks the name of a call that was given none.
NUMBERED = '.noname.'

# Enough for the gradients of a large model one by one; an entry is about 1 KiB.
_CACHE_ENTRIES = 4096
# Entries for numbered names, which do not come back: at most this many wait to be renamed.
_SPARE_ENTRIES = 16


def _encoded(name):
    # C reads as far as the first NUL: two names would be one.
    if '\0' in name:
        raise ValueError(f'the name {name!r} contains a NUL character')
    return name.encode()


class Operation:
    """One rueda_op. `struct` is a ctypes object; whoever holds its memory keeps it alive."""

    __slots__ = ('struct', 'source', 'target', 'kind', 'shape', 'result', 'received', '_dims',
                 '_splits')

    def __init__(self, struct, name):
        self.struct = struct
        self.source = self.target = 0
        self.kind = None
        self.shape = ()
        self.result = self.received = self._dims = self._splits = None
        struct.struct_size = _native.OP_BYTES
        struct.name = _encoded(name)

    def fill(self, kind, source, target, shape, splits=None):
        """Describes the operation; `kind` see Session.run.

        `source` and `target` are addresses, 0 for none. `splits`: rows for each rank, of an
        alltoall.
        """
        struct = self.struct
        if source != self.source:
            struct.input = self.source = source
        if target != self.target:
            struct.output = self.target = target
        if kind != self.kind:
            struct.kind, struct.dtype, struct.reduce_op, struct.root, scales, *rest = kind
            struct.process_set, struct.priority = rest or (0, 0)
            struct.scale_set = 0 if scales is None else 1
            struct.prescale, struct.postscale = scales or (1.0, 1.0)
            self.kind = kind
        if shape != self.shape:
            self._dims = _native.int64_array(shape) if shape else None
            struct.shape = _native.address_of(self._dims) if shape else None
            struct.ndim = len(shape)
            self.shape = shape
        if splits is not None or self._splits is not None:
            self._splits = _native.int64_array(splits) if splits is not None else None
            struct.splits = _native.address_of(self._splits) if splits is not None else None
            struct.splits_count = len(splits) if splits is not None else 0

    def expect_rows(self, ranks):
        """Makes room for what a blocking gather answers: `result` and `received`."""
        if self.received is None or len(self.received) != ranks:
            self.result, self.received = _native.Pointer(), _native.int64_array((0,) * ranks)
            self.struct.result = _native.address_of(self.result)
            self.struct.received = _native.address_of(self.received)


class Entry:
    """Operations that are submitted by one call, and room for their handles."""

    __slots__ = ('operations', 'handles', 'address', 'handles_address', '_array')

    def __init__(self, names):
        self._array, self.handles = _native.op_array(len(names))
        self.address = _native.address_of(self._array)
        self.handles_address = _native.address_of(self.handles)
        self.operations = [Operation(struct, name) for struct, name in zip(self._array, names)]


class EntryCache:
    """Entries by name, least recently used first out. Any thread: each step is atomic."""

    def __init__(self):
        self._entries = {}
        self._spare = []

    def take(self, name):
        """The entry for one operation, out of the cache until put() is called."""
        entry = self._entries.pop(name, None)
        if entry is None:
            try:
                entry = self._spare.pop()
                entry.operations[0].struct.name = _encoded(name)
            except IndexError:
                entry = Entry((name,))
        return entry

    def take_group(self, names):
        """The entry for operations that are submitted together; `names` is a tuple."""
        return self._entries.pop(names, None) or Entry(names)

    def put(self, key, entry):
        """Gives an entry back once the call that used it has returned."""
        if key.__class__ is str and NUMBERED in key:
            if len(self._spare) < _SPARE_ENTRIES:
                self._spare.append(entry)
        elif key.__class__ is str or NUMBERED not in key[0]:
            self._entries[key] = entry
            if len(self._entries) > _CACHE_ENTRIES:
                self._entries.pop(next(iter(self._entries), None), None)
