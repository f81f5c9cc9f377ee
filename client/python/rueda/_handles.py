# SPDX-License-Identifier: Apache-2.0
"""Handles of asynchronous operations: small integers that scripts keep, poll and synchronise.

Any thread. A handle ends at its first synchronisation; later calls answer None, as in Horovod.
"""

import itertools

from rueda.exceptions import HorovodInternalError


class Pending:
    """One asynchronous call: its native handles, what must stay alive, and how to finish it.

    `keep` holds the tensors whose memory the operations use. After all operations have succeeded
    the caller gets `result`, or if there is `finish(natives)`, what that returns;
    `abandon(natives)`, if any, runs instead when one has failed.
    """

    __slots__ = ('natives', 'waited', 'keep', 'result', 'finish', 'abandon')

    def __init__(self, natives, keep, result, finish=None, abandon=None):
        self.natives = natives
        self.waited = 0
        self.keep = keep
        self.result = result
        self.finish = finish
        self.abandon = abandon


class HandleTable:
    """The handles of one session."""

    def __init__(self, session):
        self._session = session
        self._pending = {}
        self._numbers = itertools.count()

    def add(self, pending):
        """Returns a new handle."""
        handle = next(self._numbers)
        self._pending[handle] = pending
        return handle

    def poll(self, handle):
        """Whether synchronize() would return at once. Never blocks. ValueError: unknown handle."""
        pending = self._pending.get(handle)
        if pending is None:
            raise ValueError(f'handle {handle!r} was not created or has been synchronised')
        return all(self._session.poll(native) for native in pending.natives[pending.waited:])

    def synchronize(self, handle):
        """Waits, forgets the handle, returns the result; None for an unknown handle.

        Blocks until all ranks have taken part. Raises HorovodInternalError, or ValueError for a
        fault of the caller, when an operation failed (the first of a group). An interrupt (Ctrl-C)
        leaves the handle valid.
        """
        pending = self._pending.pop(handle, None)
        if pending is None:
            return None
        failure = None
        while pending.waited < len(pending.natives):
            try:
                self._session.wait(pending.natives[pending.waited])
            except (HorovodInternalError, ValueError) as error:
                failure = failure or error
            except BaseException:
                self._pending[handle] = pending
                raise
            pending.waited += 1
        if failure is not None:
            if pending.abandon is not None:
                pending.abandon(pending.natives)
            raise failure
        return pending.result if pending.finish is None else pending.finish(pending.natives)
