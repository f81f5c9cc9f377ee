# SPDX-License-Identifier: Apache-2.0
"""Exceptions of the package. Pure; may be imported anywhere.

A fault of the caller that is seen when an operation is submitted (unsupported dtype, name in
flight, bad root) raises ValueError. A failure after that raises HorovodInternalError or one of its
subclasses below, on every rank concerned. The texts come from the library and name the tensor, the
ranks and the values.
"""


class HorovodInternalError(RuntimeError):
    """A collective operation failed after it had been accepted, or the session has ended."""


class HostsUpdatedInterrupt(RuntimeError):
    """The hosts of the job have changed; raised by State.commit() and check_host_updates().

    `skip_sync`: nobody has joined, so that the states of all ranks are still equal.
    """

    def __init__(self, skip_sync=False):
        super().__init__('the hosts of the job have changed')
        self.skip_sync = skip_sync


class HorovodVersionMismatchError(ImportError):
    """An extension was built for another version of a framework than the one that is installed.

    For scripts that catch it: rueda is not built for a version and never raises it.
    """

    def __init__(self, name, version, installed_version):
        super().__init__(f'built for {name} {version}, but {installed_version} is installed')
        self.name = name
        self.version = version
        self.installed_version = installed_version


class MismatchError(HorovodInternalError):
    """Ranks disagree on dtype, shape, operation, root or scale. The session stays usable."""


class RankLostError(HorovodInternalError):
    """A rank of the job died. The text names the rank, its host, pid and signal."""


class ShutDownError(HorovodInternalError):
    """A rank shut the job down while operations were pending."""


class DaemonLostError(HorovodInternalError):
    """The connection to the daemon ended."""


class NotInitializedError(HorovodInternalError):
    """An operation was called before init(), after shutdown(), or in a forked child."""


class ForkedError(NotInitializedError):
    """A call in a child that was forked after init(); the session stays with the parent."""


class DeadlineExceededError(HorovodInternalError):
    """A wait reached its time limit."""


class StalledError(HorovodInternalError):
    """Some ranks never submitted the operation. The text lists the missing ranks."""


class ResourceExhaustedError(HorovodInternalError):
    """A quota or the memory of the host does not suffice. The text names the limit."""


class UnimplementedError(HorovodInternalError, NotImplementedError):
    """The library or the daemon does not offer this operation."""


class StartError(HorovodInternalError, ValueError):
    """init() failed: no daemon, missing ranks, or a malformed environment.

    Also a ValueError, since scripts written for Horovod expect that from init().
    """
