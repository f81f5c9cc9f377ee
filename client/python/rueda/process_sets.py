# SPDX-License-Identifier: Apache-2.0
"""Process sets: some ranks of the job, which run collective operations among themselves.

Sets may overlap, and what waits in one holds up nothing in another. add_process_set() and
remove_process_set() are collective over *all* ranks of the job, in one order; other calls are local
and may be made in any thread.
"""

import os
import re

from rueda import _session

_NO_COMMUNICATORS = 'rueda does not use MPI: a process set is made of a list of ranks'
_NOT_DYNAMIC = ('process sets cannot be added or removed after init(): call '
                'init(process_sets="dynamic"), or set HOROVOD_DYNAMIC_PROCESS_SETS=1 before it')
_DYNAMIC = 'HOROVOD_DYNAMIC_PROCESS_SETS'


class ProcessSet:
    """A set of ranks of the job. Give it to init() or add_process_set(), then to operations.

    `process_set_id` is None until then, and again when the set has been removed or the session has
    ended. `ranks` is ascending, without repeats. ValueError: something that is no list of integers.
    """

    mpi_comm = None

    def __init__(self, ranks_or_comm):
        try:
            ranks = list(ranks_or_comm)
        except TypeError:
            ranks = [None]
        if any(isinstance(rank, bool) or not isinstance(rank, int) for rank in ranks):
            raise ValueError('a ProcessSet needs a list of ranks, not '
                             f'{ranks_or_comm!r}; {_NO_COMMUNICATORS}')
        self.ranks = sorted(set(ranks))
        self._id = None
        self._session = None  # In which the id counts.

    @property
    def process_set_id(self):
        """Number of the set on all ranks, from 1; None while it is not registered."""
        return self._id if self._session is _session.current_or_none() else None

    def size(self):
        """Number of ranks in the set; None while it is not registered."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self):
        """Place of this process in the set, -1 outside of it; None while it is not registered."""
        if self.process_set_id is None:
            return None
        own = self._session.rank
        return self.ranks.index(own) if own in self.ranks else -1

    def included(self):
        """Whether this process belongs to the set; None while it is not registered."""
        return None if self.process_set_id is None else self._session.rank in self.ranks

    def __eq__(self, other):
        if not isinstance(other, ProcessSet) or self.process_set_id is None:
            return self is other
        return self.process_set_id == other.process_set_id

    def __hash__(self):
        return hash(tuple(self.ranks or ()))

    def __repr__(self):
        return (f'ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, '
                'mpi_comm=None)')


class _GlobalProcessSet(ProcessSet):
    """All ranks of the job."""

    process_set_id = 0

    def __init__(self):
        self._id, self._session = 0, None

    @property
    def ranks(self):
        """Ranks of the job; empty while there is no session."""
        session = _session.current_or_none()
        return list(range(session.size)) if session is not None else []

    def size(self):
        """Number of ranks in the job. ValueError before init()."""
        return _session.topology().size

    def rank(self):
        """Rank of this process in the job. ValueError before init()."""
        return _session.topology().rank

    def included(self):
        """True. ValueError before init()."""
        return _session.topology() is not None


global_process_set = _GlobalProcessSet()


def members_of(process_set):
    """(id, place of this rank, number of ranks) for an operation; None is the global set.

    ValueError: not a ProcessSet, not registered, or one that this rank does not belong to.
    """
    session = _session.current()
    if process_set is None or process_set is global_process_set:
        return session.everyone
    check_process_set(process_set)
    place = process_set.rank()
    if place < 0:
        raise ValueError(f'rank {session.rank} does not belong to {process_set!r}')
    return _session.Members(process_set.process_set_id, place, len(process_set.ranks))


def check_process_set(process_set):
    """ValueError unless it is None or a registered ProcessSet, of this rank or not."""
    if process_set is None:
        return
    if not isinstance(process_set, ProcessSet):
        raise ValueError(f'process_set must be a ProcessSet, not {process_set!r}')
    if process_set.process_set_id is None:
        raise ValueError(f'{process_set!r} is not registered: give it to init() or '
                         'add_process_set() first')


def add_process_set(process_set):
    """Registers a ProcessSet, or one made of a list of ranks, and returns it. Collective; blocking.

    ValueError: there is a set of these ranks, a number is no rank, or sets are not dynamic.
    MismatchError on all ranks: they name other ranks.
    """
    session = _session.topology()
    if not is_dynamic():
        raise ValueError(_NOT_DYNAMIC)
    if not isinstance(process_set, ProcessSet):
        process_set = ProcessSet(process_set)
    return register(session, process_set)


def register(session, process_set):
    """As add_process_set(), whether sets are dynamic or not."""
    process_set._id = session.add_process_set(process_set.ranks)
    session.count_anew(process_set._id)
    process_set._session = session
    session.process_sets[process_set._id] = process_set
    return process_set


def remove_process_set(process_set):
    """Dissolves a set; whether there was one. Collective; blocking.

    What waits in it fails with HorovodInternalError. False for the global set and for one that is
    not registered. ValueError: sets are not dynamic.
    """
    session = _session.topology()
    if not is_dynamic():
        raise ValueError(_NOT_DYNAMIC)
    number = getattr(process_set, 'process_set_id', None)
    if not number:
        return False
    registered = session.process_sets[number]
    session.remove_process_set(number)
    del session.process_sets[number]
    for dissolved in (registered, process_set):
        dissolved._id = None
    return True


def is_dynamic():
    """Whether sets may be added and removed now: HOROVOD_DYNAMIC_PROCESS_SETS is 1 or more.

    ValueError: it is no number of at least 0.
    """
    text = os.environ.get(_DYNAMIC, '0')
    if not re.fullmatch('[0-9]+', text):
        raise ValueError(f'{_DYNAMIC}={text!r} is not a number of at least 0')
    return int(text) > 0


def make_dynamic():
    """Lets sets be added and removed in this process."""
    os.environ[_DYNAMIC] = '1'


def ids_and_ranks():
    """The ranks of every registered set, by its id."""
    session = _session.topology()
    return {0: list(range(session.size)),
            **{number: list(one.ranks) for number, one in sorted(session.process_sets.items())}}


def process_set_by_id(number):
    """The registered set of that id. ValueError: there is none."""
    if number == 0:
        return global_process_set
    try:
        return _session.topology().process_sets[number]
    except KeyError:
        raise ValueError(f'there is no process set with id {number}') from None
