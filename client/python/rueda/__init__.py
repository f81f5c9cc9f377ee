# SPDX-License-Identifier: Apache-2.0
"""rueda: collective operations for training jobs, run by a daemon on each host.

This module has what does not depend on a framework: the life cycle and the topology. Scripts use
an adapter, e.g. `import rueda.torch as hvd`, which exports these names too.

Functions that answer about the topology raise ValueError before init() and after shutdown().
"""

import importlib

from rueda import _native, _session
from rueda.exceptions import HorovodInternalError  # noqa: F401 - for users

__version__ = '0.1.0'

# Reduce operations, with the values of Horovod's constants.
Average = _native.AVERAGE
Sum = _native.SUM
Adasum = 2
Min = _native.MIN
Max = _native.MAX
Product = _native.PRODUCT


_OP_NAMES = {'average': Average, 'sum': Sum, 'min': Min, 'max': Max, 'product': Product}


def types():
    """What the library can do with each data type, by the name that torch and numpy use.

    Each is {'wire': number in the C ABI, 'bytes': of one element, 'reduce_ops': names of the reduce
    operations that an allreduce can do}. All of them can be gathered and broadcast, too. Needs
    neither init() nor a daemon.
    """
    return {info.name.decode(): {
        'wire': wire, 'bytes': info.bytes,
        'reduce_ops': [name for name, op in _OP_NAMES.items() if info.reduce_ops >> op & 1],
    } for wire, info in enumerate(_native.dtype_infos())}


class GlobalProcessSet:
    """All ranks of the job: the only process set there is."""

    process_set_id = 0
    mpi_comm = None

    @property
    def ranks(self):
        """Ranks of the set, ascending; None before init()."""
        return list(range(size())) if is_initialized() else None

    def size(self):
        """Number of ranks in the set."""
        return size()

    def rank(self):
        """Rank of this process in the set."""
        return rank()

    def included(self):
        """Whether this process belongs to the set: always, once initialised."""
        return size() > 0

    def __repr__(self):
        return f'ProcessSet(process_set_id=0, ranks={self.ranks}, mpi_comm=None)'


global_process_set = GlobalProcessSet()


def check_process_set(process_set):
    """Raises NotImplementedError unless `process_set` is None or the global one."""
    if process_set is not None and process_set is not global_process_set:
        raise NotImplementedError('rueda has the global process set only, not ' + repr(process_set))


def init(comm=None, process_sets=None):
    """Joins the job and waits until all its ranks have; does nothing when already initialised.

    The job is described by RUEDA_* or HOROVOD_* variables, as ruedarun sets them; without them the
    process is a job of one rank, and a private daemon is started unless the host runs one.
    `comm` may be None or the list of all ranks, `process_sets` None or empty.
    Raises StartError (a ValueError), and NotImplementedError for other arguments.
    """
    if process_sets:
        raise NotImplementedError('rueda has the global process set only: process_sets must be '
                                  'None or empty')
    if comm is not None and not isinstance(comm, (list, tuple)):
        raise NotImplementedError('rueda takes no communicator: comm must be None')
    _session.open_session()
    if comm and sorted(comm) != list(range(size())):
        _session.close_session()
        raise NotImplementedError(f'comm={list(comm)} is not the whole job; rueda has the global '
                                  'process set only')


def shutdown():
    """Leaves the job: pending operations of all its ranks end with ShutDownError.

    Afterwards init() may be called again. Runs by itself at exit. Does nothing before init().
    """
    _session.close_session()


def is_initialized():
    """Whether init() has been called, and shutdown() not since."""
    return _session.is_open()


def rank():
    """Number of this process in the job, from 0."""
    return _session.topology().rank


def size():
    """Number of processes in the job."""
    return _session.topology().size


def local_rank():
    """Number of this process on its host, from 0."""
    return _session.topology().local_rank


def local_size():
    """Number of processes of the job on this host."""
    return _session.topology().local_size


def cross_rank():
    """Number of this host among those that have this local rank."""
    return _session.topology().cross_rank


def cross_size():
    """Number of hosts that have this local rank."""
    return _session.topology().cross_size


def is_homogeneous():
    """Whether every host has the same number of ranks."""
    session = _session.topology()
    return session.local_size * session.cross_size == session.size


def start_timeline(file_path, mark_cycles=False):
    """Raises ValueError: there is no timeline to start in this build."""
    _session.topology()
    raise ValueError('the timeline is not enabled: this build of rueda records none')


def stop_timeline():
    """Raises ValueError: there is no timeline to stop in this build."""
    _session.topology()
    raise ValueError('the timeline is not enabled: this build of rueda records none')


def mpi_threads_supported():
    """False: rueda does not use MPI. ValueError before init()."""
    return _session.topology() is None


def mpi_enabled():
    """False: rueda does not use MPI. ValueError before init()."""
    return _session.topology() is None


def mpi_built():
    """False: rueda does not use MPI."""
    return False


def gloo_enabled():
    """True: what Horovod offers with its Gloo controller, such as init() again, works here."""
    return _session.topology() is not None


def gloo_built():
    """True, see gloo_enabled()."""
    return True


def nccl_built():
    """0: no NCCL version; tensors live in host memory."""
    return 0


def ddl_built():
    """False: there is no DDL back end."""
    return False


def ccl_built():
    """False: there is no oneCCL back end."""
    return False


def cuda_built():
    """False: tensors live in host memory."""
    return False


def rocm_built():
    """False: tensors live in host memory."""
    return False


def __getattr__(name):
    """Loads `rueda.run`, which can be called as a function, when it is first asked for."""
    if name == 'run':
        return importlib.import_module('rueda.run')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
