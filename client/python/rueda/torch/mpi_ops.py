# SPDX-License-Identifier: Apache-2.0
"""The collective operations and the life cycle, under the module name that scripts import.

No MPI: the name is Horovod's. The same objects as in rueda.torch.
"""

from rueda import global_process_set
from rueda.common import basics as _basics  # noqa: F401 - tests of scripts ask it for rank() etc.
from rueda.common.basics import *  # noqa: F401,F403
from rueda.common.basics import __all__ as _of_basics
from rueda.exceptions import HorovodInternalError
from rueda.torch.compression import Compression
from rueda.torch.grouped import (grouped_allgather, grouped_allgather_async, grouped_allreduce,
                                 grouped_allreduce_, grouped_allreduce_async,
                                 grouped_allreduce_async_)
from rueda.torch.ops import (allgather, allgather_async, allreduce, allreduce_, allreduce_async,
                             allreduce_async_, barrier, broadcast, broadcast_, broadcast_async,
                             broadcast_async_, poll, synchronize)

__all__ = _of_basics + [
    'Compression', 'HorovodInternalError', 'allgather', 'allgather_async', 'allreduce',
    'allreduce_', 'allreduce_async', 'allreduce_async_', 'barrier', 'broadcast', 'broadcast_',
    'broadcast_async', 'broadcast_async_', 'global_process_set', 'grouped_allgather',
    'grouped_allgather_async', 'grouped_allreduce', 'grouped_allreduce_',
    'grouped_allreduce_async', 'grouped_allreduce_async_', 'poll', 'synchronize',
]
