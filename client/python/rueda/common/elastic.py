# SPDX-License-Identifier: Apache-2.0
"""Training that goes on after a failed operation: state in memory, and the loop around it.

The state of the training is committed now and then. When an operation fails, every rank goes back
to its last commit, all of them open a new session, rank 0 gives its state to the others, and the
training function is called again. The ranks stay the ones that the job was started with: nothing
here starts a process in place of one that died, and init() then fails after RUEDA_START_TIMEOUT.

A state belongs to the thread that trains; only on_hosts_updated() and the notification manager may
be called from others.
"""

import copy
import enum
import functools
import logging
import queue
import threading

from rueda.exceptions import HorovodInternalError, HostsUpdatedInterrupt

_log = logging.getLogger('rueda.elastic')


class HostUpdateResult(enum.IntFlag):
    """How the hosts of the job have changed."""

    no_update = 0
    removed = 1
    added = 2
    mixed = removed | added


class State:
    """What training needs to go on, with the rules for saving and agreeing on it.

    Subclasses say what is saved: save(), restore() and sync(). `bcast_object(obj)` returns rank 0's
    object on all ranks, `get_rank()` this rank's number.
    """

    def __init__(self, bcast_object, get_rank):
        self._bcast_object = bcast_object
        self._get_rank = get_rank  # For subclasses.
        self._host_messages = queue.Queue()
        self._last_updated_timestamp = 0
        self._reset_callbacks = []

    def register_reset_callbacks(self, callbacks):
        """Adds functions without arguments, called in this order after each reset, before sync().

        For what depends on size() or rank(), e.g. a learning rate.
        """
        self._reset_callbacks.extend(callbacks)

    def on_reset(self):
        """Called by the loop when a new session is open."""
        self._host_messages = queue.Queue()
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def on_hosts_updated(self, timestamp, update_res):
        """Takes news of the hosts, for the next check_host_updates(). Any thread.

        Only what rank 0 has heard counts. `timestamp`: later news have larger ones.
        """
        self._host_messages.put((timestamp, update_res))

    def commit(self):
        """Saves the state, then check_host_updates(). To be called by all ranks at one place.

        A failure costs what was done since, a commit a copy of the state: every few batches.
        """
        self.save()
        self.check_host_updates()

    def check_host_updates(self):
        """Raises HostsUpdatedInterrupt on all ranks if rank 0 has heard of other hosts.

        To be called by all ranks at one place; blocks until they have. Does not save.
        """
        before = self._last_updated_timestamp
        latest, changes = before, HostUpdateResult.no_update
        while True:
            try:
                timestamp, change = self._host_messages.get_nowait()
            except queue.Empty:
                break
            if timestamp > latest:
                latest = timestamp
                changes |= change
        before, latest, changes = self._bcast_object((before, latest, changes))
        self._last_updated_timestamp = latest
        if latest > before:
            raise HostsUpdatedInterrupt(skip_sync=changes == HostUpdateResult.removed)

    def save(self):
        """Keeps a copy of the state in the memory of this process."""
        raise NotImplementedError

    def restore(self):
        """Goes back to what save() kept. Exchanges nothing."""
        raise NotImplementedError

    def sync(self):
        """Gives all ranks, and their saved copies, the present state of rank 0. Blocking."""
        raise NotImplementedError

    def reset(self):
        """Takes over what the new session says, e.g. size(). Nothing by default."""


class ObjectState(State):
    """A state of Python objects: each keyword argument becomes an attribute.

    Objects are deep-copied when they are saved, so they may be changed in place, and pickled when
    they are sent. Attributes that are set later, under other names, are not part of the state.
    """

    def __init__(self, bcast_object, get_rank, **kwargs):
        super().__init__(bcast_object, get_rank)
        for name, value in kwargs.items():
            setattr(self, name, value)
        self._saved_state = dict.fromkeys(kwargs)
        ObjectState.save(self)

    def save(self):
        """Copies the attributes."""
        self._saved_state = copy.deepcopy(
            {name: getattr(self, name) for name in self._saved_state})

    def restore(self):
        """Sets the attributes to copies of what was saved."""
        for name, value in copy.deepcopy(self._saved_state).items():
            setattr(self, name, value)

    def sync(self):
        """Sets the attributes to those of rank 0, which keeps its own objects; then save()."""
        if self._saved_state:
            own = {name: getattr(self, name) for name in self._saved_state}
            received = self._bcast_object(own)
            if received is not own:
                for name, value in received.items():
                    setattr(self, name, value)
        self.save()


class WorkerNotificationManager:
    """Passes news of the hosts on to the states that are in training. Any thread.

    Nothing in rueda looks for new hosts. A program that knows of them, e.g. from its scheduler's
    signal, calls handle_hosts_updated() on rank 0.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._listeners = []

    def register_listener(self, listener):
        """Adds an object with on_hosts_updated()."""
        with self._lock:
            self._listeners.append(listener)

    def remove_listener(self, listener):
        """The reverse. ValueError for one that is not there."""
        with self._lock:
            self._listeners.remove(listener)

    def handle_hosts_updated(self, timestamp, update_res):
        """Calls on_hosts_updated() of each listener; a HostUpdateResult says what has changed."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.on_hosts_updated(timestamp, update_res)


notification_manager = WorkerNotificationManager()


def run_fn(func, reset):
    """Wraps a training function `func(state, ...)` so that it is called again after failures.

    `reset()` ends the session and opens a new one. The wrapper returns what `func` returns. Before
    each call the state is synchronised. HorovodInternalError, from `func` or from that: back to the
    last commit. HostsUpdatedInterrupt: with the state as it is, and without synchronising it if the
    interrupt says so. Anything else, also from reset(), is raised to the caller.
    """
    @functools.wraps(func)
    def wrapper(state, *args, **kwargs):
        notification_manager.register_listener(state)
        skip_sync = False
        try:
            while True:
                try:
                    if not skip_sync:
                        state.sync()
                    return func(state, *args, **kwargs)
                except HorovodInternalError as error:
                    _log.warning('going back to the last commit, in a new session, after: %s',
                                 error)
                    state.restore()
                    skip_sync = False
                except HostsUpdatedInterrupt as interrupt:
                    _log.warning('going on in a new session: %s', interrupt)
                    skip_sync = interrupt.skip_sync
                reset()
                state.on_reset()
        finally:
            notification_manager.remove_listener(state)
    return wrapper
