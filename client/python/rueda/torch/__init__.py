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

__all__ = [
    'Adasum', 'Average', 'Compression', 'Compressor', 'DaemonLostError', 'DistributedOptimizer',
    'HorovodInternalError', 'Max', 'Min', 'MismatchError', 'Product', 'RankLostError',
    'ShutDownError', 'Sum', '__version__', 'allgather', 'allgather_async', 'allgather_object',
    'allreduce', 'allreduce_', 'allreduce_async', 'allreduce_async_', 'barrier', 'broadcast',
    'broadcast_', 'broadcast_async', 'broadcast_async_', 'broadcast_object',
    'broadcast_optimizer_state', 'broadcast_parameters', 'ccl_built', 'cross_rank', 'cross_size',
    'cuda_built', 'ddl_built', 'global_process_set', 'gloo_built', 'gloo_enabled',
    'grouped_allgather', 'grouped_allgather_async', 'grouped_allreduce', 'grouped_allreduce_',
    'grouped_allreduce_async', 'grouped_allreduce_async_', 'init', 'is_homogeneous',
    'is_initialized', 'local_rank', 'local_size', 'mpi_built', 'mpi_enabled',
    'mpi_threads_supported', 'nccl_built', 'poll', 'rank', 'rocm_built', 'shared_zeros', 'shutdown',
    'size', 'start_timeline', 'stop_timeline', 'synchronize',
]
