# SPDX-License-Identifier: Apache-2.0
"""The exceptions that scripts catch: the classes of rueda.exceptions themselves."""

from rueda.exceptions import (HorovodInternalError, HorovodVersionMismatchError,
                              HostsUpdatedInterrupt)

__all__ = ['HorovodInternalError', 'HorovodVersionMismatchError', 'HostsUpdatedInterrupt']
