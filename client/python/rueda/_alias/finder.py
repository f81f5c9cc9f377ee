# SPDX-License-Identifier: Apache-2.0
"""Imports of horovod.* that give the modules rueda.* themselves. Any thread.

The same objects, not copies: what a script patches in `horovod.torch.mpi_ops` must be what
rueda.torch calls.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

import rueda
from rueda import _alias

_NAME = 'horovod'


def stand_in():
    """Puts rueda in the place of the module `horovod`, for this process.

    Raises GenuineHorovodError where that is refused.
    """
    reason = _alias.refusal(os.environ, sys.path)
    if reason is not None:
        raise _alias.GenuineHorovodError(reason)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    sys.modules[_NAME] = rueda


class _Finder(importlib.abc.MetaPathFinder):
    """Knows every name below `horovod`."""

    def find_spec(self, name, path=None, target=None):
        """The spec of the rueda module of that name. ModuleNotFoundError: there is none."""
        if name.partition('.')[0] != _NAME:
            return None
        own = rueda.__name__ + name[len(_NAME):]
        found = importlib.util.find_spec(own)
        if found is None:
            raise ModuleNotFoundError(
                f'No module named {name!r}: rueda {rueda.__version__} stands in for Horovod here, '
                f'and it has no {own}', name=name)
        spec = importlib.machinery.ModuleSpec(name, _Loader(found), origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        spec.has_location = found.has_location  # For `python -m horovod.x`: its sys.argv[0].
        return spec


class _Loader(importlib.abc.Loader):
    """Loads a horovod module by importing its rueda module."""

    def __init__(self, found):
        self._found = found

    def exec_module(self, module):
        """Leaves the rueda module in sys.modules, from where the import takes it."""
        sys.modules[module.__name__] = importlib.import_module(self._found.name)

    def get_code(self, name):
        """What `python -m horovod.x` runs as __main__."""
        return self._found.loader.get_code(self._found.name)
