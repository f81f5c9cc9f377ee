# SPDX-License-Identifier: Apache-2.0
"""rueda for PyTorch, with the names of horovod.torch: `import rueda.torch as hvd`.

Ranks are processes of one host with tensors in host memory. Errors: see rueda.exceptions.
"""

from rueda import __version__
from rueda.common.util import check_extension, check_installed_version
from rueda.compression import Compressor
from rueda.exceptions import DaemonLostError, MismatchError, RankLostError, ShutDownError
from rueda.torch import elastic, mpi_ops
from rueda.torch.functions import broadcast_optimizer_state, broadcast_parameters
from rueda.torch.in_sync import assert_in_sync
from rueda.torch.memory import shared_zeros
from rueda.torch.mpi_ops import *  # noqa: F401,F403 - the operations, and the life cycle
from rueda.torch.objects import allgather_object, broadcast_object
from rueda.torch.optimizer import DistributedOptimizer
from rueda.torch.sync_batch_norm import SyncBatchNorm

__all__ = mpi_ops.__all__ + [
    'Compressor', 'DaemonLostError', 'DistributedOptimizer', 'MismatchError', 'RankLostError',
    'ShutDownError', 'SyncBatchNorm', '__version__', 'allgather_object', 'assert_in_sync',
    'broadcast_object', 'broadcast_optimizer_state', 'broadcast_parameters', 'check_extension',
    'check_installed_version', 'elastic', 'mpi_ops', 'shared_zeros',
]
