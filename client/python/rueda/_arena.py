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
        self._kept = {}    # By address: what stands for the block once the session is closed.

    def allocate(self, count):
        """A writable buffer of `count` > 0 zeroed bytes, aligned to 64.

        Blocking for some milliseconds per 100 MB. Raises ResourceExhaustedError.
        """
        pointer = _native.Pointer()
        self._session.call(_native.library().rueda_alloc, count, pointer)
        buffer = self.adopt(pointer.value, count)
        _native.zero_memory(pointer.value, count)
        return buffer

    def adopt(self, address, count, give_back=None):
        """A writable buffer of `count` > 0 bytes that the library has handed over.

        `give_back()`, when it has gone; else it is freed as what allocate() returns.
        """
        with self._lock:
            self._blocks[address] = count
        give_back = give_back or (lambda: self._session.free(address))
        return _native.block_buffer(address, count, lambda: self._free(address, give_back))

    def _free(self, address, give_back):
        with self._lock:
            if self._blocks.pop(address, None) is None:
                return
            if self._open:
                give_back()
            elif address in self._kept:
                self._kept.pop(address).forget(address)

    def close(self):
        """Stops giving blocks back: the session is about to free them all.

        Returns what is still in use, as a list of (address, copy of its bytes).
        """
        with self._lock:
            self._open = False
            # A finalizer may run in here and take blocks out, whose memory is still mapped.
            sizes = ((address, self._blocks.get(address)) for address in tuple(self._blocks))
            return [(address, _native.bytes_at(address, count))
                    for address, count in sizes if count is not None]

    def keep(self, spans):
        """Takes over the memory that was put where blocks in use were; see restore_memory()."""
        with self._lock:
            for span in spans:
                for address in span.addresses():
                    self._kept[address] = span
                    # Went away meanwhile, and did not see it there.
                    if address not in self._blocks and self._kept.pop(address, None) is span:
                        span.forget(address)
