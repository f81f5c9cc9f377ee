# SPDX-License-Identifier: Apache-2.0
"""rueda for PyTorch, with the names of horovod.torch: `import rueda.torch as hvd`.

Ranks are processes of one host with tensors in host memory. Errors: see rueda.exceptions.
"""

from rueda import (Adasum, Average, Max, Min, Product, Sum, __version__, ccl_built, cross_rank,
                   cross_size, cuda_built, ddl_built, global_process_set, gloo_built, gloo_enabled,
                   init, is_homogeneous, is_initialized, local_rank, local_size, mpi_built,
                   mpi_enabled, mpi_threads_supported, nccl_built, rank, rocm_built, shutdown, size,
                   start_timeline, stop_timeline)
from rueda.common.util import check_extension, check_installed_version
from rueda.compression import Compressor
from rueda.exceptions import (DaemonLostError, HorovodInternalError, MismatchError, RankLostError,
                              ShutDownError)
from rueda.torch import elastic, mpi_ops
from rueda.torch.compression import Compression
from rueda.torch.functions import broadcast_optimizer_state, broadcast_parameters
from rueda.torch.grouped import (grouped_allgather, grouped_allgather_async, grouped_allreduce,
                                 grouped_allreduce_, grouped_allreduce_async,
                                 grouped_allreduce_async_)
from rueda.torch.in_sync import assert_in_sync
from rueda.torch.memory import shared_zeros
from rueda.torch.objects import allgather_object, broadcast_object
from rueda.torch.ops import (allgather, allgather_async, allreduce, allreduce_, allreduce_async,
                             allreduce_async_, barrier, broadcast, broadcast_, broadcast_async,
                             broadcast_async_, poll, synchronize)
from rueda.torch.optimizer import DistributedOptimizer
from rueda.torch.rows import (alltoall, alltoall_async, grouped_alltoall, grouped_alltoall_async,
                              grouped_reducescatter, grouped_reducescatter_async, reducescatter,
                              reducescatter_async)
from rueda.torch.sparse import sparse_allreduce_async
from rueda.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    'Adasum', 'Average', 'Compression', 'Compressor', 'DaemonLostError', 'DistributedOptimizer',
    'HorovodInternalError', 'Max', 'Min', 'MismatchError', 'Product', 'RankLostError',
    'ShutDownError', 'Sum', 'SyncBatchNorm', '__version__', 'allgather', 'allgather_async',
    'allgather_object', 'allreduce', 'allreduce_', 'allreduce_async', 'allreduce_async_',
    'alltoall', 'alltoall_async', 'assert_in_sync', 'barrier', 'broadcast', 'broadcast_',
    'broadcast_async',
    'broadcast_async_', 'broadcast_object', 'broadcast_optimizer_state', 'broadcast_parameters',
    'ccl_built', 'check_extension', 'check_installed_version',
    'cross_rank', 'cross_size', 'cuda_built', 'ddl_built', 'elastic',
    'global_process_set', 'gloo_built', 'gloo_enabled', 'grouped_allgather',
    'grouped_allgather_async', 'grouped_allreduce', 'grouped_allreduce_', 'grouped_allreduce_async',
    'grouped_allreduce_async_', 'grouped_alltoall', 'grouped_alltoall_async',
    'grouped_reducescatter', 'grouped_reducescatter_async', 'init', 'is_homogeneous',
    'is_initialized', 'local_rank', 'local_size', 'mpi_built', 'mpi_enabled', 'mpi_ops',
    'mpi_threads_supported', 'nccl_built', 'poll', 'rank', 'reducescatter', 'reducescatter_async',
    'rocm_built', 'shared_zeros', 'shutdown', 'size', 'sparse_allreduce_async', 'start_timeline',
    'stop_timeline', 'synchronize',
]

_NO_SETS = 'global_process_set, which holds all ranks, is the only one there is'
# Names of horovod.torch that are missing here, and what a script can do without them.
_NOT_YET = {
    'ProcessSet': _NO_SETS,
    'add_process_set': _NO_SETS,
    'join': 'give every rank the same number of batches, '
            'as torch.utils.data.DistributedSampler does',
    'remove_process_set': _NO_SETS,
}


def __getattr__(name):
    """Called for names that do not exist; AttributeError, so that hasattr() answers False."""
    if name in _NOT_YET:
        raise AttributeError(f'{__name__} does not offer {name!r} yet: {_NOT_YET[name]}')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
