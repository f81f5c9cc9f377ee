# SPDX-License-Identifier: Apache-2.0
"""rueda for PyTorch, with the names of horovod.torch: `import rueda.torch as hvd`.

Ranks are processes of one host with tensors in host memory. Errors: see rueda.exceptions.
"""

from rueda import (Adasum, Average, Max, Min, Product, Sum, __version__, ccl_built, cross_rank,
                   cross_size, cuda_built, ddl_built, global_process_set, gloo_built, gloo_enabled,
                   init, is_homogeneous, is_initialized, local_rank, local_size, mpi_built,
                   mpi_enabled, mpi_threads_supported, nccl_built, rank, rocm_built, shutdown, size,
                   start_timeline, stop_timeline)
from rueda.compression import Compressor
from rueda.exceptions import (DaemonLostError, HorovodInternalError, MismatchError, RankLostError,
                              ShutDownError)
from rueda.torch import elastic, mpi_ops
from rueda.torch.compression import Compression
from rueda.torch.functions import broadcast_optimizer_state, broadcast_parameters
from rueda.torch.grouped import (grouped_allgather, grouped_allgather_async, grouped_allreduce,
                                 grouped_allreduce_, grouped_allreduce_async,
                                 grouped_allreduce_async_)
from rueda.torch.memory import shared_zeros
from rueda.torch.objects import allgather_object, broadcast_object
from rueda.torch.ops import (allgather, allgather_async, allreduce, allreduce_, allreduce_async,
                             allreduce_async_, barrier, broadcast, broadcast_, broadcast_async,
                             broadcast_async_, poll, synchronize)
from rueda.torch.optimizer import DistributedOptimizer
from rueda.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    'Adasum', 'Average', 'Compression', 'Compressor', 'DaemonLostError', 'DistributedOptimizer',
    'HorovodInternalError', 'Max', 'Min', 'MismatchError', 'Product', 'RankLostError',
    'ShutDownError', 'Sum', 'SyncBatchNorm', '__version__', 'allgather', 'allgather_async',
    'allgather_object',
    'allreduce', 'allreduce_', 'allreduce_async', 'allreduce_async_', 'barrier', 'broadcast',
    'broadcast_', 'broadcast_async', 'broadcast_async_', 'broadcast_object',
    'broadcast_optimizer_state', 'broadcast_parameters', 'ccl_built', 'cross_rank', 'cross_size',
    'cuda_built', 'ddl_built', 'elastic', 'global_process_set', 'gloo_built', 'gloo_enabled',
    'grouped_allgather', 'grouped_allgather_async', 'grouped_allreduce', 'grouped_allreduce_',
    'grouped_allreduce_async', 'grouped_allreduce_async_', 'init', 'is_homogeneous',
    'is_initialized', 'local_rank', 'local_size', 'mpi_built', 'mpi_enabled', 'mpi_ops',
    'mpi_threads_supported', 'nccl_built', 'poll', 'rank', 'rocm_built', 'shared_zeros', 'shutdown',
    'size', 'start_timeline', 'stop_timeline', 'synchronize',
]

_NO_SETS = 'global_process_set, which holds all ranks, is the only one there is'
_NO_CHECK = 'rueda is not built for one version of PyTorch, so leave the call out'
# Names of horovod.torch that are missing here, and what a script can do without them.
_NOT_YET = {
    'ProcessSet': _NO_SETS,
    'add_process_set': _NO_SETS,
    'alltoall': 'call allgather() and take the parts meant for this rank',
    'alltoall_async': 'call allgather_async() and take the parts meant for this rank',
    'check_extension': _NO_CHECK,
    'check_installed_version': _NO_CHECK,
    'grouped_alltoall': 'call grouped_allgather() and take the parts meant for this rank',
    'grouped_alltoall_async':
        'call grouped_allgather_async() and take the parts meant for this rank',
    'grouped_reducescatter': 'call grouped_allreduce() and take the rows of this rank',
    'grouped_reducescatter_async':
        'call grouped_allreduce_async() and take the rows of this rank',
    'join': 'give every rank the same number of batches, '
            'as torch.utils.data.DistributedSampler does',
    'reducescatter': 'call allreduce() and take the rows of this rank',
    'reducescatter_async': 'call allreduce_async() and take the rows of this rank',
    'remove_process_set': _NO_SETS,
    'sparse_allreduce_async': 'call allreduce_async() on tensor.to_dense(), or pass '
                              'sparse_as_dense=True to DistributedOptimizer',
}


def __getattr__(name):
    """Called for names that do not exist; AttributeError, so that hasattr() answers False."""
    if name in _NOT_YET:
        raise AttributeError(f'{__name__} does not offer {name!r} yet: {_NOT_YET[name]}')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
