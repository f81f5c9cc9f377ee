# SPDX-License-Identifier: Apache-2.0
"""rueda: collective operations for training jobs, run by a daemon on each host.

This module has what does not depend on a framework: the life cycle and the topology. Scripts use
an adapter, e.g. `import rueda.torch as hvd`, which exports these names too.

Functions that answer about the topology raise ValueError before init() and after shutdown().
"""

import importlib
import os

from rueda import _native, _session
from rueda.exceptions import HorovodInternalError  # noqa: F401 - for users
from rueda.process_sets import (ProcessSet, add_process_set,  # noqa: F401 - for users
                                global_process_set, is_dynamic, make_dynamic, register,
                                remove_process_set)

__version__ = '0.1.0'

# Reduce operations, with the values of Horovod's constants.
Average = _native.AVERAGE
Sum = _native.SUM
Adasum = _native.ADASUM
Min = _native.MIN
Max = _native.MAX
Product = _native.PRODUCT


_OP_NAMES = {'average': Average, 'sum': Sum, 'adasum': Adasum, 'min': Min, 'max': Max,
             'product': Product}


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


def init(comm=None, process_sets=None):
    """Joins the job and waits until all its ranks have; does nothing when already initialised.

    The job is described by RUEDA_* or HOROVOD_* variables, as ruedarun sets them; without them the
    process is a job of one rank, and a private daemon is started unless the host runs one.
    `comm`: None, or a list of ranks of the job, this one among them, which are then a job of their
    own: rank() and size() are its. `process_sets`: None; a list of ProcessSet or of lists of ranks,
    equal on all ranks, that are registered; or "dynamic": sets may be added and removed later.

    Raises StartError (a ValueError). ValueError: two sets of the same ranks, or `comm` is not a
    list of ranks with this one; then nothing is initialised.
    """
    if comm is not None and (isinstance(comm, str) or not isinstance(comm, (list, tuple, range))):
        raise ValueError('rueda does not use MPI: comm must be None or a list of ranks, not '
                         f'{comm!r}')
    dynamic = isinstance(process_sets, str)
    if dynamic and process_sets != 'dynamic':
        raise ValueError(f'process_sets must be a list or "dynamic", not {process_sets!r}')
    is_dynamic()  # Says so if the variable cannot be read.
    sets = [one if isinstance(one, ProcessSet) else ProcessSet(one)
            for one in (() if dynamic else process_sets or ())]
    if not _session.open_session(comm):
        return
    if dynamic:
        make_dynamic()
    try:
        for process_set in sets:
            register(_session.current(), process_set)
    except BaseException:
        _session.close_session()
        raise


def join(device=-1, left_out=False):
    """This rank has no more data: the other ranks go on without it until all have joined.

    Blocks until then and returns the rank that joined last. In an allreduce a joined rank counts
    with zeros, so an average still divides by size(); other operations than allreduce and barrier
    raise MismatchError meanwhile. With `left_out` all operations run as though this rank were not
    there: averages are over the others, it gives no rows and gets none. `device` has no effect.
    """
    return _session.current().join(0, left_out)


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
    """Rank 0 begins to write what happens to its operations to a new file, for chrome://tracing.

    With `mark_cycles` also when the daemon lets operations run. Any rank may call it; on others
    than 0 it does nothing. While a timeline runs it only writes a line to standard error.
    ValueError before init(), where the timeline was not enabled then (HOROVOD_TIMELINE must be a
    path or "DYNAMIC"), and on rank 0 for a file that cannot be written.
    """
    session = _session.topology()
    path = os.fsencode(file_path)
    if b'\0' in path:
        raise ValueError(f'not a path: {file_path!r}')
    session.call(_native.library().rueda_start_timeline, path, int(bool(mark_cycles)))


def stop_timeline():
    """Completes the file of start_timeline(), or of HOROVOD_TIMELINE.

    Where no timeline runs it only writes a line to standard error. ValueError as there.
    """
    session = _session.topology()
    session.call(_native.library().rueda_stop_timeline)


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
