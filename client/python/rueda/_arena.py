# SPDX-License-Identifier: Apache-2.0
"""Memory that the daemon and the other ranks reach without a copy, as Python buffers.

Any thread. A block goes back to the arena when the last object that uses its buffer has gone; an
operation in flight keeps its tensors alive, so a block is never given back under one.
"""

import threading

from rueda import _native


class Arena:
    """The blocks of one session."""

    def __init__(self, session):
        self._session = session
        self._lock = threading.RLock()  # Finalizers may run inside allocate() of the same thread.
        self._blocks = {}  # Size in bytes by address, of blocks in use.
        self._open = True

    def allocate(self, count):
        """A writable buffer of `count` > 0 zeroed bytes, aligned to 64.

        Blocking for some milliseconds per 100 MB. Raises ResourceExhaustedError.
        """
        pointer = _native.Pointer()
        self._session.call(_native.library().rueda_alloc, count, pointer)
        address = pointer.value
        with self._lock:
            self._blocks[address] = count
        buffer = _native.block_buffer(address, count, lambda: self._free(address))
        _native.zero_memory(address, count)
        return buffer

    def _free(self, address):
        with self._lock:
            if self._open and self._blocks.pop(address, None) is not None:
                self._session.free(address)

    def close(self):
        """Stops giving blocks back: the session is about to free them all.

        Returns what is still in use, as a list of (address, copy of its bytes).
        """
        with self._lock:
            self._open = False
            return [(address, _native.bytes_at(address, count))
                    for address, count in self._blocks.items()]
