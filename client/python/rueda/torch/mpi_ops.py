# SPDX-License-Identifier: Apache-2.0
"""The collective operations and the life cycle, under the module name that scripts import.

No MPI: the name is Horovod's. The same objects as in rueda.torch.
"""

from rueda import join
from rueda.common import basics as _basics  # noqa: F401 - tests of scripts ask it for rank() etc.
from rueda.common.basics import *  # noqa: F401,F403
from rueda.common.basics import __all__ as _of_basics
from rueda.exceptions import HorovodInternalError
from rueda.process_sets import (ProcessSet, add_process_set, global_process_set,
                                remove_process_set)
from rueda.torch.compression import Compression
from rueda.torch.grouped import (grouped_allgather, grouped_allgather_async, grouped_allreduce,
                                 grouped_allreduce_, grouped_allreduce_async,
                                 grouped_allreduce_async_)
from rueda.torch.ops import (allgather, allgather_async, allreduce, allreduce_, allreduce_async,
                             allreduce_async_, barrier, broadcast, broadcast_, broadcast_async,
                             broadcast_async_, poll, synchronize)
from rueda.torch.rows import (alltoall, alltoall_async, grouped_alltoall, grouped_alltoall_async,
                              grouped_reducescatter, grouped_reducescatter_async, reducescatter,
                              reducescatter_async)
from rueda.torch.sparse import sparse_allreduce_async

__all__ = _of_basics + [
    'Compression', 'HorovodInternalError', 'ProcessSet', 'add_process_set', 'allgather',
    'allgather_async', 'allreduce', 'allreduce_', 'allreduce_async', 'allreduce_async_', 'alltoall',
    'alltoall_async', 'barrier', 'broadcast', 'broadcast_', 'broadcast_async', 'broadcast_async_',
    'global_process_set', 'grouped_allgather', 'grouped_allgather_async', 'grouped_allreduce',
    'grouped_allreduce_', 'grouped_allreduce_async', 'grouped_allreduce_async_', 'grouped_alltoall',
    'grouped_alltoall_async', 'grouped_reducescatter', 'grouped_reducescatter_async', 'join',
    'poll', 'reducescatter', 'reducescatter_async', 'remove_process_set', 'sparse_allreduce_async',
    'synchronize',
]
