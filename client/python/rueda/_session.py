# SPDX-License-Identifier: Apache-2.0
"""The session of this process: one rank of one job, opened by init() and closed by shutdown().

Threads: operations may run in any thread; init() and shutdown() are serialised by a lock, and
shutdown() ends the waits of other threads before it closes the session. A forked child has no
session: every call there raises ForkedError, and its exit does not touch the parent's session.
"""

import atexit
import collections
import itertools
import os
import sys
import threading
import time
import weakref

from rueda import _daemon, _native
from rueda._arena import Arena
from rueda._comm import narrow
from rueda._handles import HandleTable
from rueda._interrupts import Interrupts
from rueda._operations import NUMBERED, EntryCache
from rueda.exceptions import (ForkedError, HorovodInternalError, NotInitializedError,
                              ShutDownError, StartError)

_NOT_INITIALIZED = ('Horovod has not been initialized; use hvd.init(). '
                    '(rueda has no session in this process.)')
# How long a private daemon may take from its start until it listens.
_START_SECONDS = 5
# How long shutdown() waits for calls of other threads to return.
_LEAVE_SECONDS = 10
_FORKED = ('this process was forked from one that had called init(); a rueda session does not '
           'cross a fork: call init() in processes started by spawn or by ruedarun')


# A process set as one of its ranks sees it: number, place of the rank, number of ranks.
Members = collections.namedtuple('Members', ('id', 'rank', 'size'))


class Session:
    """An open session. Made by init(); everything here may be called from any thread."""

    def __init__(self, options, native, interrupts, comm=None):
        self.comm = comm  # As init() was given it.
        self.rank, self.size = options.rank, options.size
        self.local_rank, self.local_size = options.local_rank, options.local_size
        self.cross_rank, self.cross_size = options.cross_rank, options.cross_size
        self.everyone = Members(0, self.rank, self.size)
        self.process_sets = {}  # By id, but for the one of all ranks.
        self.handles = HandleTable(self)
        self.arena = Arena(self)
        # Objects with memory of the arena: release_memory() is called before it goes away.
        self.tenants = weakref.WeakSet()
        self._native = native
        self._interrupts = interrupts
        self._library = _native.library()
        self._entries = EntryCache()
        self._counters = {}
        # Threads with a call in progress; append and remove are atomic, so this needs no lock.
        self._calls = []
        self._closing = False
        self._closer = None  # Thread that closes the session when its own call has returned.
        self._call_left = threading.Event()

    def name(self, prefix, name, process_set=0):
        """`prefix.name`, or for name None `prefix.noname.<n>`, n from 0 for each prefix and set.

        Ranks match by name and set only, so all ranks of a set must make their anonymous calls in
        one order.
        """
        if name is not None:
            return f'{prefix}.{name}'
        key = prefix, process_set
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters.setdefault(key, itertools.count())
        return f'{prefix}{NUMBERED}{next(counter)}'

    def count_anew(self, process_set):
        """Lets the anonymous names of a process set begin again: its number was another's."""
        for key in [key for key in list(self._counters) if key[1] == process_set]:
            del self._counters[key]

    def run(self, name, kind, source, target, shape):
        """Runs one operation that does not gather to its end in this thread. Blocking.

        `kind` is what all ranks must agree on besides name and shape: a tuple (kind, dtype,
        reduce_op, root, scales) of wire values, where scales is None or (prescale, postscale), and
        for other sets than that of all ranks, or other priorities than 0, (..., set, priority).
        `source` and `target` are addresses of contiguous memory that the caller keeps alive.
        """
        entry = self._entries.take(name)
        entry.operations[0].fill(kind, source, target, shape)
        self.call(self._library.rueda_run, entry.address)
        self._entries.put(name, entry)

    def submit(self, name, kind, source, target, shape, splits=None):
        """Starts one operation, described as for run(); returns its native handle.

        Does not wait for ranks. On an error nothing was started. ValueError: a fault of the caller,
        e.g. a name in flight.
        """
        entry = self._entries.take(name)
        entry.operations[0].fill(kind, source, target, shape, splits)
        self.call(self._library.rueda_submit, entry.address, 1, entry.handles_address)
        native = entry.handles[0]
        self._entries.put(name, entry)
        return native

    def submit_group(self, names, operations):
        """As submit(), for operations that become ready together; returns their native handles.

        `names` is a tuple; `operations` lists what run() is given after the name.
        """
        entry = self._entries.take_group(names)
        for operation, arguments in zip(entry.operations, operations):
            operation.fill(*arguments)
        self.call(self._library.rueda_submit, entry.address, len(names), entry.handles_address)
        natives = entry.handles[:]
        self._entries.put(names, entry)
        return natives

    def gather(self, name, kind, source, shape, splits, row_bytes, ranks):
        """Runs one allgather or alltoall of `ranks` ranks, as run() does. Blocking.

        Returns (buffer, rows): the result in memory of the arena, None for no bytes, and the rows
        from each rank, of `row_bytes` each.
        """
        entry = self._entries.take(name)
        operation = entry.operations[0]
        operation.fill(kind, source, 0, shape, splits)
        operation.expect_rows(ranks)
        self.call(self._library.rueda_run, entry.address)
        address, rows = operation.result.value, operation.received[:]
        self._entries.put(name, entry)
        return address and self.arena.adopt(address, sum(rows) * row_bytes), rows

    def take_gathered(self, native):
        """The result of a finished allgather or alltoall, as of gather(). Forgets its handle."""
        gathered = _native.Gathered(struct_size=_native.GATHERED_BYTES)
        try:
            self.call(self._library.rueda_gather_result, native, gathered)
            rows = gathered.first_dims[:gathered.ranks]
            buffer = gathered.data and self.arena.adopt(gathered.data, gathered.bytes,
                                                        lambda: self.release(native))
        except BaseException:
            self.release(native)
            raise
        if not buffer:
            self.release(native)
        return buffer, rows

    def add_process_set(self, ranks):
        """Makes a process set with all ranks of the job; returns its number. Blocking."""
        number, array = _native.Uint32(), _native.int32_array(ranks)
        self.call(self._library.rueda_add_process_set, _native.address_of(array), len(ranks),
                  number)
        return number.value

    def remove_process_set(self, number):
        """Dissolves a process set with all ranks of the job. Blocking."""
        self.call(self._library.rueda_remove_process_set, number)

    def join(self, number, left_out):
        """Waits until all ranks of a set have joined; returns the last one. Blocking."""
        last = _native.Int32()
        self.call(self._library.rueda_join, number, int(left_out), last)
        return last.value

    def release(self, native):
        """Forgets an allgather, whatever its outcome. Does not block or raise."""
        if not self._closing:
            self._library.rueda_release(self._native, native)

    def wait(self, native):
        """Waits for one native handle. Blocking; raises what the operation failed with."""
        self.call(self._library.rueda_wait, native, 0)

    def poll(self, native):
        """Whether the operation has an outcome. Does not block."""
        done = _native.Int32()
        self.call(self._library.rueda_poll, native, done)
        return bool(done.value)

    def call(self, function, *arguments):
        """Calls a function of the library with this session; a failure becomes an exception."""
        thread = threading.get_ident()
        self._calls.append(thread)
        try:
            if self._closing:
                raise NotInitializedError(_NOT_INITIALIZED)
            code = function(self._native, *arguments)
            if code:
                self._raise(code)
        finally:
            self._calls.remove(thread)
            if self._closing:
                self._after_call(thread)

    def _raise(self, code):
        error = _native.failure(code)
        if code == _native.INTERRUPTED:
            error = self._interrupts.take() or self._ended(error)
        raise error

    def _ended(self, error):
        if self._closing:
            return ShutDownError('Horovod has been shut down by this process while the operation '
                                 'was pending')
        # A signal handler raised in an earlier call, and the caller went on.
        return HorovodInternalError(f'the session has ended: {error}, by an exception of a signal '
                                    'handler; shutdown() and init() start a new one')

    def free(self, address):
        """Gives a block of the arena back. Never raises; for finalizers."""
        self._library.rueda_free(self._native, address)

    def healthy(self):
        """Whether the session can run operations: no rank has left and the daemon is there."""
        return not self._closing and not self._library.rueda_health(self._native)

    def close(self):
        """Ends the session on all ranks. Blocks up to about 100 ms for waits of other threads.

        In a signal handler that interrupted an operation of its own thread, the session ends when
        that operation has returned.
        """
        for tenant in list(self.tenants):
            tenant.release_memory()
        self._closing = True
        self._interrupts.stop()
        if self._has_call_above(sys._getframe()):
            self._closer = threading.get_ident()
        else:
            self._finish_close()

    def _has_call_above(self, frame):
        # The stack and not `_calls`: an interrupt between two instructions of call() may have left
        # an element there.
        while frame is not None:
            if frame.f_code is Session.call.__code__ and frame.f_locals.get('self') is self:
                return True
            frame = frame.f_back
        return False

    def _after_call(self, thread):
        self._call_left.set()
        if self._closer == thread and not self._has_call_above(sys._getframe(2)):
            self._closer = None
            self._finish_close()

    def _finish_close(self):
        own, deadline = threading.get_ident(), time.monotonic() + _LEAVE_SECONDS
        # Other threads leave their calls soon: the library asks `interrupts` every 100 ms.
        while any(thread != own for thread in self._calls):
            if time.monotonic() > deadline:
                return  # Better a session that ends with the process than freed memory in use.
            self._call_left.wait(0.1)
            self._call_left.clear()
        in_use = self.arena.close()
        self._library.rueda_close(self._native)
        # A script may hold on to a gradient; reading it must not crash.
        self.arena.keep(_native.restore_memory(in_use))


class _Process:
    """What this process has at most one of."""

    def __init__(self):
        self.session = None
        self.forked = False
        self.daemon = None
        self.lock = threading.RLock()
        self.exit_hook = False


_process = _Process()


def _after_fork_in_child():
    _process.lock = threading.RLock()
    if _process.session is not None or _process.forked:
        _process.forked = True
        # Never closed here: it belongs to the parent. Kept, so that nothing of it is freed.
        _process.parent_session = _process.session
        _process.session = None
    if _process.daemon is not None:
        _process.daemon.close()
        _process.daemon = None


os.register_at_fork(after_in_child=_after_fork_in_child)


def current():
    """The open session. Raises NotInitializedError, or ForkedError in a forked child."""
    session = _process.session
    if session is None:
        if _process.forked:
            raise ForkedError(_FORKED)
        raise NotInitializedError(_NOT_INITIALIZED)
    return session


def current_or_none():
    """The open session, or None."""
    return _process.session


def topology():
    """The open session for rank(), size() and the like; ValueError where there is none."""
    if _process.session is None and not _process.forked:
        raise ValueError(_NOT_INITIALIZED)
    return current()


def is_open():
    """Whether init() has succeeded and shutdown() was not called since."""
    return _process.session is not None


def open_session(comm=None):
    """Opens the session of this process; does nothing while a working one is open. Whether it did.

    `comm`: None, or the ranks of the job that are one of their own here. Blocks until all its ranks
    have arrived. Raises StartError, or ForkedError.
    """
    with _process.lock:
        if _process.forked:
            raise ForkedError(_FORKED)
        if _process.session is not None:
            if _process.session.healthy():
                return False
            close_session()
        _process.session = _open(comm)
        if not _process.exit_hook:
            atexit.register(close_session)
            _process.exit_hook = True
        return True


def close_session():
    """Closes the session of this process; does nothing where there is none."""
    with _process.lock:
        session, _process.session = _process.session, None
        if session is not None:
            session.close()


def _open(comm):
    library = _native.library()
    options = _native.Options(struct_size=_native.OPTIONS_BYTES)
    code = library.rueda_options_init(options)
    if code:
        raise StartError(str(_native.failure(code)))
    if comm is not None:
        narrow(options, comm)
    interrupts = Interrupts()
    options.interrupted = interrupts.callback
    if options.size == 1 and 'RUEDA_JOB' not in os.environ:
        # Lone processes at one daemon are jobs of their own.
        options.job = _daemon.unique_name('lone').encode()
    if (options.size == 1 and 'RUEDA_SOCKET' not in os.environ
            and not _daemon.system_socket_exists()):
        options.socket = _private_socket()
    return Session(options, _connect(options, interrupts), interrupts, comm)


def _connect(options, interrupts):
    # A private daemon is started beside its clients, so it may not listen yet.
    deadline = time.monotonic() + (_START_SECONDS if options.socket.startswith(b'@') else 0)
    native, pause = _native.Pointer(), 0.001
    while True:
        code = _native.library().rueda_open(options, native)
        if not code:
            return native.value
        error = StartError(str(_native.failure(code)))
        if code == _native.INTERRUPTED:
            raise interrupts.take() or error
        if code != _native.UNAVAILABLE or time.monotonic() > deadline:
            raise error
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _private_socket():
    # One daemon for all sessions that this lone process opens one after another.
    if _process.daemon is None:
        try:
            _process.daemon = _daemon.PrivateDaemon(detached=True)
        except OSError as error:
            raise StartError(f'cannot start a private daemon: {error}') from error
    return _process.daemon.socket.encode()


__all__ = ['HorovodInternalError', 'Session', 'close_session', 'current', 'is_open',
           'open_session', 'topology']
